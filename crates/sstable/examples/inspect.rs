//! Looks at one sstable: `inspect dump|verify|metadata FILE`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: inspect dump|verify|metadata FILE";
    let (verb, file) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let file = Path::new(&file);
    match verb.as_str() {
        "dump" => sstable::tool::dump(file, 0, &mut std::io::stdout().lock())?,
        "verify" => println!("{:?}", sstable::tool::verify(file)?),
        "metadata" => print!("{}", sstable::tool::metadata(file)?),
        _ => return Err(usage.into()),
    }
    Ok(())
}
