//! Log levels of the node.

use super::client::{Client, strings};
use ::http::escape;

/// Prints the level of the root, and those of the modules that have one of their own.
pub(super) async fn levels(client: &mut Client) -> Result<String, String> {
    let mut text = format!("\n{:<50}{:>10}\n", "Logger Name", "Log Level");
    for name in strings(&client.get("/system/logger").await?) {
        let level = client.text(&format!("/system/logger/{}", escape(&name))).await?;
        let shown = if name == "root" { "ROOT" } else { &name };
        text.push_str(&format!("{shown:<50}{:>10}\n", level.to_ascii_uppercase()));
    }
    Ok(text)
}

/// Sets the level of a module, removes it where none is given, or resets all levels to those of the options.
pub(super) async fn set_level(
    client: &mut Client,
    module: Option<&str>,
    level: Option<&str>,
) -> Result<String, String> {
    let path = module.map_or_else(
        || "/system/logger".to_owned(),
        |module| format!("/system/logger/{}", escape(module)),
    );
    match level {
        Some(level) => client.post(&format!("{path}?level={}", escape(level))).await?,
        None => client.delete(&path).await?,
    }
    Ok(String::new())
}
