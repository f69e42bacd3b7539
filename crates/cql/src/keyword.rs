//! The words of the language, and which of them may not name anything without quotes.
//!
//! A word is found by one probe or two into a table built at compile time, keyed by the letters that the lexer gathers
//! while it scans the word. Words that only ScyllaDB or later Cassandra versions give a meaning to (`BYPASS`,
//! `BETWEEN`) are unreserved, so that a schema which uses them as names keeps working.

macro_rules! keywords {
    (reserved { $($reserved:ident = $reserved_text:literal,)* } unreserved { $($free:ident = $free_text:literal,)* }) => {
        /// A word with a meaning. `None` is any other word.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Keyword {
            None,
            $($reserved,)*
            $($free,)*
        }

        const ALL: &[(Keyword, &str, bool)] = &[
            (Keyword::None, "", false),
            $((Keyword::$reserved, $reserved_text, true),)*
            $((Keyword::$free, $free_text, false),)*
        ];
    };
}

keywords! {
    reserved {
    Add = "add", Allow = "allow", Alter = "alter", And = "and", Apply = "apply", Asc = "asc", Authorize = "authorize",
    Batch = "batch", Begin = "begin", By = "by", ColumnFamily = "columnfamily", Create = "create", Delete = "delete",
    Desc = "desc", Describe = "describe", Drop = "drop", Entries = "entries", Execute = "execute", False = "false",
    From = "from", Full = "full", Grant = "grant", If = "if", In = "in", Index = "index", Infinity = "infinity",
    Insert = "insert", Into = "into", Is = "is", Keyspace = "keyspace", Limit = "limit", Materialized = "materialized",
    Modify = "modify", Nan = "nan", NoRecursive = "norecursive", Not = "not", Null = "null", Of = "of", On = "on", Or = "or",
    Order = "order", Primary = "primary", Rename = "rename", Revoke = "revoke", Schema = "schema", Select = "select",
    Set = "set", Table = "table", To = "to", Token = "token", True = "true", Truncate = "truncate", Unlogged = "unlogged",
    Update = "update", Use = "use", Using = "using", View = "view", Where = "where", With = "with",
    } unreserved {
    Access = "access", Aggregate = "aggregate", Aggregates = "aggregates", All = "all", Ann = "ann", As = "as",
    Ascii = "ascii", Between = "between", BigInt = "bigint", Blob = "blob", Boolean = "boolean", Bypass = "bypass",
    Cache = "cache", Called = "called", Cast = "cast", Cidrs = "cidrs", Cluster = "cluster", Clustering = "clustering",
    Compact = "compact", Contains = "contains", Count = "count", Counter = "counter", Custom = "custom",
    Datacenters = "datacenters", Date = "date", Decimal = "decimal", Default = "default", Distinct = "distinct",
    Double = "double", Duration = "duration", Exists = "exists", Expr = "expr", Filtering = "filtering",
    FinalFunc = "finalfunc", Float = "float", Frozen = "frozen", Function = "function", Functions = "functions",
    Group = "group", Hashed = "hashed", Identity = "identity", Inet = "inet", InitCond = "initcond", Input = "input",
    Int = "int", Internals = "internals", Json = "json", Key = "key", Keys = "keys", Keyspaces = "keyspaces",
    Language = "language", LargeDataGuardrails = "large_data_guardrails", Like = "like", List = "list", Login = "login",
    Map = "map", Masked = "masked", Mbean = "mbean", Mbeans = "mbeans", NoLogin = "nologin", NoSuperuser = "nosuperuser", Only = "only", Options = "options",
    Partition = "partition", Password = "password", Per = "per", Permission = "permission", Permissions = "permissions",
    ReduceFunc = "reducefunc", Replace = "replace", Returns = "returns", Role = "role", Roles = "roles",
    SelectMasked = "select_masked", SFunc = "sfunc", SmallInt = "smallint", Static = "static", Storage = "storage",
    SType = "stype", Superuser = "superuser", Superusers = "superusers", Tables = "tables", Text = "text", Time = "time",
    Timeout = "timeout", Timestamp = "timestamp", TimeUuid = "timeuuid", TinyInt = "tinyint", Trigger = "trigger", Ttl = "ttl",
    Tuple = "tuple", Type = "type", Types = "types", Unmask = "unmask", Unset = "unset", User = "user", Users = "users",
    Uuid = "uuid", Values = "values", Varchar = "varchar", VarInt = "varint", Vector = "vector",
    }
}

/// The tables, only after DESCRIBE: a word of cqlsh that is no keyword of other statements.
pub(crate) const COLUMN_FAMILIES: &str = "columnfamilies";

const SLOTS: usize = 1024;

/// Keyword numbers by the letters of the word, with linear probing; 0 is an empty slot.
static TABLE: [u8; SLOTS] = {
    let mut table = [0_u8; SLOTS];
    let mut index = 1;
    while index < ALL.len() {
        assert!(index <= u8::MAX as usize);
        let mut slot = slot_of(LETTERS[index]);
        while table[slot] != 0 {
            slot = (slot + 1) % SLOTS;
        }
        table[slot] = index as u8;
        index += 1;
    }
    table
};

/// The letters of each keyword, by its number.
static LETTERS: [u64; ALL.len()] = {
    let mut letters = [0; ALL.len()];
    let mut index = 1;
    while index < ALL.len() {
        let word = ALL[index].1.as_bytes();
        let mut at = 0;
        while at < word.len() {
            letters[index] = and_letter(letters[index], word[at]);
            at += 1;
        }
        index += 1;
    }
    letters
};

/// The letters of a word and one more. Up to eight are kept as they are; more of them only hash the word.
const fn and_letter(letters: u64, letter: u8) -> u64 {
    letters.rotate_left(8) ^ letter as u64
}

const fn slot_of(letters: u64) -> usize {
    (letters.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % SLOTS
}

/// Letters in lower case, digits and the underscore as they are; 0 for bytes that no word has.
static LOWER: [u8; 256] = {
    let mut lower = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let of_word = (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'_';
        lower[byte] = if of_word { (byte as u8).to_ascii_lowercase() } else { 0 };
        byte += 1;
    }
    lower
};

/// Whether the byte may be part of a word.
pub(crate) fn is_word_byte(byte: u8) -> bool {
    LOWER[usize::from(byte)] != 0
}

/// The length of the word that the text begins with, and the keyword that it is.
pub(crate) fn scan_word(text: &[u8]) -> (usize, Keyword) {
    let (mut length, mut letters) = (0, 0);
    for &byte in text {
        let lower = LOWER[usize::from(byte)];
        if lower == 0 {
            break;
        }
        letters = and_letter(letters, lower);
        length += 1;
    }
    (length, with_letters(&text[..length], letters))
}

/// The keyword a word is, in whatever case it is written.
pub(crate) fn keyword(word: &[u8]) -> Keyword {
    match scan_word(word) {
        (length, keyword) if length == word.len() => keyword,
        _ => Keyword::None,
    }
}

fn with_letters(word: &[u8], letters: u64) -> Keyword {
    let mut slot = slot_of(letters);
    loop {
        let number = usize::from(TABLE[slot]);
        let (keyword, text, _) = ALL[number];
        if keyword == Keyword::None {
            return keyword;
        }
        let is_equal = LETTERS[number] == letters && text.len() == word.len();
        if is_equal && (word.len() <= 8 || text.as_bytes().eq_ignore_ascii_case(word)) {
            return keyword;
        }
        slot = (slot + 1) % SLOTS;
    }
}

impl Keyword {
    /// Whether the word names things only in quotes.
    pub(crate) fn is_reserved(self) -> bool {
        ALL[self as usize].2
    }

    /// The lower-cased word.
    pub(crate) fn text(self) -> &'static str {
        ALL[self as usize].1
    }

    /// The names Cassandra's messages have for the words: `K_FROM`. `TABLE` and `COLUMNFAMILY` are one token there.
    pub(crate) fn token_name(self) -> String {
        match self {
            Keyword::Table => "K_COLUMNFAMILY".to_owned(),
            other => format!("K_{}", other.text().to_ascii_uppercase()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_is_found_in_any_case() {
        for &(expected, text, _) in &ALL[1..] {
            assert_eq!(keyword(text.as_bytes()), expected, "{text}");
            assert_eq!(
                keyword(text.to_ascii_uppercase().as_bytes()),
                expected,
                "{text} in upper case"
            );
        }
    }

    #[test]
    fn other_words_are_not_keywords() {
        for word in ["", "a", "selec", "selectt", "writetime", "a_very_long_name_of_a_column"] {
            assert_eq!(keyword(word.as_bytes()), Keyword::None, "{word}");
        }
    }
}
