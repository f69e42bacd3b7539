//! Conditions.
//!
//! ```text
//! or      = and { OR and }
//! and     = not { AND not }
//! not     = NOT not | leaf
//! leaf    = operand comparator operand | operand BETWEEN operand AND operand | operand IN ( operand { , operand } )
//!         | function | ( or )
//! operand = path | value | function | ( operand )
//! ```
//! After `(`, only what follows shows whether it encloses a condition or an operand, so rules return a [`Node`].

use super::Parser;
use crate::Error;
use crate::expression::token::{Keyword, Kind};
use crate::expression::{Comparison, Condition, Function, Operand};

/// What was read.
struct Node<'t> {
    content: Content<'t>,
    /// All of it is enclosed by parentheses.
    is_enclosed: bool,
}

enum Content<'t> {
    Condition(Condition),
    Operand(Operand),
    /// A function that is true or false, which may not be an operand.
    Call(&'t str, Condition),
}

/// In place of an operand that the parser has noted an error of.
const REFUSED: Operand = Operand::Size(Vec::new());

impl<'t> Parser<'t> {
    /// A whole condition.
    pub(super) fn condition(&mut self) -> Result<Condition, Error> {
        let node = self.or()?;
        self.as_condition(node)
    }

    fn or(&mut self) -> Result<Node<'t>, Error> {
        self.chain(Keyword::Or, Self::and, Condition::Or)
    }

    fn and(&mut self) -> Result<Node<'t>, Error> {
        self.chain(Keyword::And, Self::not, Condition::And)
    }

    /// Parts joined by a word.
    fn chain(
        &mut self,
        word: Keyword,
        part: impl Fn(&mut Self) -> Result<Node<'t>, Error>,
        join: impl FnOnce(Vec<Condition>) -> Condition,
    ) -> Result<Node<'t>, Error> {
        let first = part(self)?;
        if self.tokens.peek() != Some(Kind::Keyword(word)) {
            return Ok(first);
        }
        let mut all = vec![self.as_condition(first)?];
        while self.tokens.take(Kind::Keyword(word)) {
            self.operators += 1;
            let next = part(self)?;
            all.push(self.as_condition(next)?);
        }
        Ok(Node::condition(join(all)))
    }

    fn not(&mut self) -> Result<Node<'t>, Error> {
        if !self.tokens.take(Kind::Keyword(Keyword::Not)) {
            return self.leaf();
        }
        self.operators += 1;
        let inner = self.nested(Self::not)?;
        let inner = self.as_condition(inner)?;
        Ok(Node::condition(Condition::Not(Box::new(inner))))
    }

    fn leaf(&mut self) -> Result<Node<'t>, Error> {
        let node = self.enclosed_or_first()?;
        let Some(kind) = self.tokens.peek() else {
            return Ok(node);
        };
        if let Some(comparison) = comparison(kind) {
            let left = self.as_operand(node)?;
            self.tokens.advance();
            self.operators += 1;
            let right = self.operand()?;
            return Ok(Node::condition(Condition::Compare {
                comparison,
                left,
                right,
            }));
        }
        match kind {
            Kind::Keyword(Keyword::Between) => {
                let operand = self.as_operand(node)?;
                self.tokens.advance();
                self.operators += 1;
                let low = self.operand()?;
                self.tokens.expect(Kind::Keyword(Keyword::And))?;
                let high = self.operand()?;
                Ok(Node::condition(Condition::Between { operand, low, high }))
            }
            Kind::Keyword(Keyword::In) => {
                let operand = self.as_operand(node)?;
                self.tokens.advance();
                self.operators += 1;
                let list = self.operands()?;
                self.in_operands_max = self.in_operands_max.max(list.len());
                Ok(Node::condition(Condition::In { operand, list }))
            }
            _ => Ok(node),
        }
    }

    /// What begins a leaf.
    fn enclosed_or_first(&mut self) -> Result<Node<'t>, Error> {
        if !self.tokens.take(Kind::Sign("(")) {
            let content = self.first()?;
            let is_enclosed = false;
            return Ok(Node { content, is_enclosed });
        }
        let mut node = self.nested(Self::or)?;
        self.tokens.expect(Kind::Sign(")"))?;
        self.has_redundant_parentheses |= node.is_enclosed;
        node.is_enclosed = true;
        if let Content::Operand(Operand::Path(path)) = &mut node.content {
            let levels = path.steps.len();
            self.steps(path)?;
            node.is_enclosed = path.steps.len() == levels;
        }
        Ok(node)
    }

    /// A path, value or function.
    fn first(&mut self) -> Result<Content<'t>, Error> {
        match (self.tokens.peek(), self.tokens.peek_second()) {
            (Some(Kind::Value), _) => Ok(Content::Operand(Operand::Value(self.value()))),
            (Some(Kind::Word), Some(Kind::Sign("("))) => self.call(),
            _ => Ok(Content::Operand(Operand::Path(self.path()?))),
        }
    }

    /// An operand where no condition can be.
    fn operand(&mut self) -> Result<Operand, Error> {
        self.operand_node().and_then(|node| self.as_operand(node))
    }

    fn operand_node(&mut self) -> Result<Node<'t>, Error> {
        if !self.tokens.take(Kind::Sign("(")) {
            let content = self.first()?;
            let is_enclosed = false;
            return Ok(Node { content, is_enclosed });
        }
        let mut node = self.nested(Self::operand_node)?;
        self.tokens.expect(Kind::Sign(")"))?;
        self.has_redundant_parentheses |= node.is_enclosed;
        node.is_enclosed = true;
        if let Content::Operand(Operand::Path(path)) = &mut node.content {
            let levels = path.steps.len();
            self.steps(path)?;
            node.is_enclosed = path.steps.len() == levels;
        }
        Ok(node)
    }

    /// `( operand { , operand } )`
    fn operands(&mut self) -> Result<Vec<Operand>, Error> {
        self.tokens.expect(Kind::Sign("("))?;
        let mut all = vec![self.nested(Self::operand)?];
        while self.tokens.take(Kind::Sign(",")) {
            all.push(self.nested(Self::operand)?);
        }
        self.tokens.expect(Kind::Sign(")"))?;
        Ok(all)
    }

    fn call(&mut self) -> Result<Content<'t>, Error> {
        let name = self.tokens.peek_text();
        self.tokens.advance();
        let operands = self.operands()?;
        let function = match name {
            "size" => return Ok(Content::Operand(Operand::Size(operands))),
            "attribute_exists" => Function::AttributeExists,
            "attribute_not_exists" => Function::AttributeNotExists,
            "attribute_type" => Function::AttributeType,
            "begins_with" => Function::BeginsWith,
            "contains" => Function::Contains,
            _ => {
                self.unknown_function.get_or_insert(name);
                return Ok(Content::Call(name, Condition::Or(Vec::new())));
            }
        };
        Ok(Content::Call(name, Condition::Call(function, operands)))
    }

    /// The node as a condition; what follows a mere operand is a syntax error.
    fn as_condition(&mut self, node: Node<'t>) -> Result<Condition, Error> {
        match node.content {
            Content::Condition(condition) | Content::Call(_, condition) => Ok(condition),
            Content::Operand(Operand::Size(_)) => {
                self.misused_function.get_or_insert("size");
                Ok(Condition::Or(Vec::new()))
            }
            Content::Operand(_) => Err(self.tokens.syntax_error()),
        }
    }

    /// The node as an operand; an operator after a condition is a syntax error.
    fn as_operand(&mut self, node: Node<'t>) -> Result<Operand, Error> {
        match node.content {
            Content::Operand(operand) => Ok(operand),
            Content::Call(name, _) => {
                self.misused_function.get_or_insert(name);
                Ok(REFUSED)
            }
            Content::Condition(_) => Err(self.tokens.syntax_error()),
        }
    }
}

impl Node<'_> {
    fn condition(condition: Condition) -> Self {
        Self {
            content: Content::Condition(condition),
            is_enclosed: false,
        }
    }
}

fn comparison(kind: Kind) -> Option<Comparison> {
    let Kind::Sign(sign) = kind else { return None };
    Some(match sign {
        "=" => Comparison::Equal,
        "<>" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        _ => return None,
    })
}
