//! Syntax trees of expressions.

use crate::path::Path;

/// A parsed expression: its tree, and the names and values that the tree refers to by number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expression<T> {
    /// What the tree refers to.
    pub symbols: Symbols,
    /// The tree.
    pub tree: T,
}

/// Names of attributes and placeholders in an expression, each once, in the order of their first use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Symbols {
    /// Names as written: an attribute's name, or a placeholder with its `#`. Legacy parameters have only attributes'
    /// names here, which may begin with `#`: `names_are_literal` says so.
    pub names: Vec<String>,
    /// Placeholders of values, with their `:`.
    pub values: Vec<String>,
    /// No name is a placeholder.
    pub names_are_literal: bool,
}

/// The number of a value in [`Symbols`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ValueId(pub u16);

/// How two operands are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "they are operators")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A condition: of an item, or of the keys of a Query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// `left operator right`
    Compare {
        /// The operator.
        comparison: Comparison,
        /// The operand before it.
        left: Operand,
        /// The operand after it.
        right: Operand,
    },
    /// `operand BETWEEN low AND high`
    Between {
        /// What is compared.
        operand: Operand,
        /// The least value.
        low: Operand,
        /// The greatest value.
        high: Operand,
    },
    /// `operand IN (list)`
    In {
        /// What is compared.
        operand: Operand,
        /// One of them must be equal.
        list: Vec<Operand>,
    },
    /// All hold.
    And(Vec<Condition>),
    /// One holds.
    Or(Vec<Condition>),
    /// It does not hold.
    Not(Box<Condition>),
    /// A function that is true or false, and its operands. Binding checks how many there are and their types.
    Call(Function, Vec<Operand>),
}

/// An operand of a condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operand {
    /// The attribute of the item.
    Path(Path),
    /// What the request gives.
    Value(ValueId),
    /// `size(operand)`; binding checks that there is one operand.
    Size(Vec<Operand>),
}

/// A function of a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "they are functions of the developer guide")]
pub enum Function {
    AttributeExists,
    AttributeNotExists,
    AttributeType,
    BeginsWith,
    Contains,
}

impl Function {
    /// The name in expressions and texts of errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AttributeExists => "attribute_exists",
            Self::AttributeNotExists => "attribute_not_exists",
            Self::AttributeType => "attribute_type",
            Self::BeginsWith => "begins_with",
            Self::Contains => "contains",
        }
    }
}

/// The paths that a projection returns, in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Projection {
    /// Distinct paths, none within another.
    pub paths: Vec<Path>,
}

/// What an update does. All operands are read from the item as it was before.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Update {
    /// The actions, in the order of the text.
    pub actions: Vec<Action>,
    /// The update is made of AttributeUpdates, where ADD takes lists too and DELETE may have no value.
    pub is_legacy: bool,
}

/// What an update does with one attribute or element.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Action {
    /// Where.
    pub path: Path,
    /// What.
    pub change: Change,
}

/// What an action does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// SET: assigns a value.
    Set(SetValue),
    /// REMOVE.
    Remove,
    /// ADD: adds a number, or elements to a set.
    Add(ValueId),
    /// DELETE: removes elements from a set.
    Delete(ValueId),
}

/// What SET assigns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetValue {
    /// The value of an operand.
    Operand(SetOperand),
    /// `a + b`
    Plus(SetOperand, SetOperand),
    /// `a - b`
    Minus(SetOperand, SetOperand),
}

impl SetValue {
    /// The operands, in the order of the text.
    pub fn operands(&self) -> impl Iterator<Item = &SetOperand> {
        let (first, second) = match self {
            Self::Operand(operand) => (operand, None),
            Self::Plus(left, right) | Self::Minus(left, right) => (left, Some(right)),
        };
        std::iter::once(first).chain(second)
    }
}

/// An operand of SET.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetOperand {
    /// The attribute of the item.
    Path(Path),
    /// What the request gives.
    Value(ValueId),
    /// `if_not_exists(path, operand)`; binding checks the operands.
    IfNotExists(Vec<SetOperand>),
    /// `list_append(first, second)`; binding checks the operands.
    ListAppend(Vec<SetOperand>),
}

impl Condition {
    /// Calls `visit` with every path, in the order of the text.
    pub fn visit_paths(&self, visit: &mut impl FnMut(&Path)) {
        match self {
            Self::And(all) | Self::Or(all) => all.iter().for_each(|part| part.visit_paths(visit)),
            Self::Not(inner) => inner.visit_paths(visit),
            leaf => leaf.operands().for_each(|operand| operand.visit_paths(visit)),
        }
    }

    /// The operands of a condition that has no conditions in it, in the order of the text; else none.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        let (first, rest): ([Option<&Operand>; 3], &[Operand]) = match self {
            Self::Compare { left, right, .. } => ([Some(left), Some(right), None], &[]),
            Self::Between { operand, low, high } => ([Some(operand), Some(low), Some(high)], &[]),
            Self::In { operand, list } => ([Some(operand), None, None], list),
            Self::Call(_, operands) => ([None; 3], operands),
            Self::And(_) | Self::Or(_) | Self::Not(_) => ([None; 3], &[]),
        };
        first.into_iter().flatten().chain(rest)
    }
}

impl Operand {
    fn visit_paths(&self, visit: &mut impl FnMut(&Path)) {
        match self {
            Self::Path(path) => visit(path),
            Self::Value(_) => {}
            Self::Size(operands) => operands.iter().for_each(|operand| operand.visit_paths(visit)),
        }
    }
}
