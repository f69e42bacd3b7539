//! Updates.
//!
//! ```text
//! update  = section { section }          each section at most once
//! section = SET set { , set } | REMOVE path { , path } | ADD path value { , ... } | DELETE path value { , ... }
//! set     = path = sum
//! sum     = operand [ + operand | - operand ] | ( sum )
//! operand = path | value | function ( operand { , operand } ) | ( operand )
//! ```

use super::Parser;
use crate::Error;
use crate::expression::token::{Keyword, Kind};
use crate::expression::{Action, Change, SetOperand, SetValue, Update};

impl Parser<'_> {
    /// A whole update.
    pub(super) fn update(&mut self) -> Result<Update, Error> {
        let mut update = Update::default();
        let mut sections = Vec::new();
        loop {
            let Some(Kind::Keyword(section)) = self.tokens.peek() else {
                return Err(self.tokens.syntax_error());
            };
            let name = match section {
                Keyword::Set => "SET",
                Keyword::Remove => "REMOVE",
                Keyword::Add => "ADD",
                Keyword::Delete => "DELETE",
                _ => return Err(self.tokens.syntax_error()),
            };
            self.tokens.advance();
            if sections.contains(&section) {
                self.repeated_section.get_or_insert(name);
            } else {
                sections.push(section);
            }
            self.section(section, &mut update.actions)?;
            if self.tokens.peek().is_none() {
                return Ok(update);
            }
        }
    }

    fn section(&mut self, section: Keyword, actions: &mut Vec<Action>) -> Result<(), Error> {
        loop {
            let path = self.path()?;
            let change = match section {
                Keyword::Set => {
                    self.tokens.expect(Kind::Sign("="))?;
                    self.operators += 1;
                    Change::Set(self.sum()?)
                }
                Keyword::Remove => Change::Remove,
                _ if self.tokens.peek() != Some(Kind::Value) => return Err(self.tokens.syntax_error()),
                Keyword::Add => Change::Add(self.value()),
                _ => Change::Delete(self.value()),
            };
            actions.push(Action { path, change });
            if !self.tokens.take(Kind::Sign(",")) {
                return Ok(());
            }
        }
    }

    fn sum(&mut self) -> Result<SetValue, Error> {
        let first = if self.tokens.take(Kind::Sign("(")) {
            let sum = self.nested(Self::sum)?;
            self.tokens.expect(Kind::Sign(")"))?;
            sum
        } else {
            SetValue::Operand(self.set_operand()?)
        };
        let is_plus = match self.tokens.peek() {
            Some(Kind::Sign("+")) => true,
            Some(Kind::Sign("-")) => false,
            _ => return Ok(first),
        };
        let SetValue::Operand(left) = first else {
            return Err(self.tokens.syntax_error());
        };
        self.tokens.advance();
        self.operators += 1;
        let right = self.set_operand()?;
        Ok(if is_plus {
            SetValue::Plus(left, right)
        } else {
            SetValue::Minus(left, right)
        })
    }

    fn set_operand(&mut self) -> Result<SetOperand, Error> {
        match (self.tokens.peek(), self.tokens.peek_second()) {
            (Some(Kind::Value), _) => Ok(SetOperand::Value(self.value())),
            (Some(Kind::Word), Some(Kind::Sign("("))) => self.set_call(),
            (Some(Kind::Sign("(")), _) => {
                self.tokens.advance();
                let operand = self.nested(Self::set_operand)?;
                self.tokens.expect(Kind::Sign(")"))?;
                Ok(operand)
            }
            _ => Ok(SetOperand::Path(self.path()?)),
        }
    }

    fn set_call(&mut self) -> Result<SetOperand, Error> {
        let name = self.tokens.peek_text();
        self.tokens.advance();
        self.tokens.expect(Kind::Sign("("))?;
        let mut operands = vec![self.nested(Self::set_operand)?];
        while self.tokens.take(Kind::Sign(",")) {
            operands.push(self.nested(Self::set_operand)?);
        }
        self.tokens.expect(Kind::Sign(")"))?;
        Ok(match name {
            "if_not_exists" => SetOperand::IfNotExists(operands),
            "list_append" => SetOperand::ListAppend(operands),
            _ => {
                self.unknown_function.get_or_insert(name);
                SetOperand::IfNotExists(Vec::new())
            }
        })
    }
}
