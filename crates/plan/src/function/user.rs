//! User-defined functions and aggregates: how a plan calls them.

use std::borrow::Cow;
use std::sync::Arc;

use schema::{Keyspace, UserAggregate, UserFunction};
use types::TupleIter;

use super::operation::Arguments;
use super::{Aggregate, Resolved, Scalar, What};
use crate::error::{FunctionFailure, PlanError};

/// A user-defined aggregate with the functions that it calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserAggregation {
    pub(crate) aggregate: Arc<UserAggregate>,
    state: Arc<UserFunction>,
    reduce: Option<Arc<UserFunction>>,
    finish: Option<Arc<UserFunction>>,
}

impl UserAggregation {
    /// That of an aggregate in its keyspace; None when one of its functions is not there.
    pub fn new(keyspace: &Keyspace, aggregate: &Arc<UserAggregate>) -> Option<Self> {
        let state = &aggregate.state_type;
        let optional = |name: &Option<String>, types: &[&types::CqlType]| match name {
            None => Some(None),
            Some(name) => keyspace.function(name, types).cloned().map(Some),
        };
        Some(Self {
            state: keyspace
                .function(&aggregate.state_function, &aggregate.state_arguments())?
                .clone(),
            reduce: optional(&aggregate.reduce_function, &[state, state])?,
            finish: optional(&aggregate.final_function, &[state])?,
            aggregate: aggregate.clone(),
        })
    }

    /// Whether states of parts of the rows can be joined.
    pub(crate) const fn is_mergeable(&self) -> bool {
        self.reduce.is_some()
    }
}

impl Resolved {
    /// A user-defined function.
    pub fn user_function(function: &Arc<UserFunction>) -> Self {
        Self {
            keyspace: function.keyspace.clone(),
            name: function.name.clone(),
            arguments: function.arguments.iter().map(|(_, t)| t.clone()).collect(),
            returns: function.returns.clone(),
            is_generic: false,
            what: What::Scalar(Scalar::User(function.clone())),
        }
    }

    /// A user-defined aggregate.
    pub fn user_aggregate(aggregation: UserAggregation) -> Self {
        let aggregate = &aggregation.aggregate;
        Self {
            keyspace: aggregate.keyspace.clone(),
            name: aggregate.name.clone(),
            arguments: aggregate.arguments.clone(),
            returns: aggregate.returns.clone(),
            is_generic: false,
            what: What::Aggregate(Aggregate::User(Arc::new(aggregation))),
        }
    }
}

/// Calls a function.
pub(crate) fn call(function: &Arc<UserFunction>, arguments: Arguments<'_, '_>) -> Result<Option<Vec<u8>>, PlanError> {
    functions::call(function, arguments).map_err(|error| {
        let types = function.arguments.iter();
        PlanError::UserFunction(Box::new(FunctionFailure {
            keyspace: function.keyspace.clone(),
            function: function.name.clone(),
            argument_types: types.map(|(_, t)| t.unfrozen().to_string()).collect(),
            message: error.to_string(),
        }))
    })
}

/// A user-defined aggregate over the rows seen so far.
#[derive(Clone, Debug)]
pub(crate) struct UserState {
    of: Arc<UserAggregation>,
    /// Whether there was a row.
    pub(crate) has_rows: bool,
    /// None is null.
    pub(crate) state: Option<Vec<u8>>,
}

fn lend(bytes: Option<&[u8]>) -> Option<Cow<'_, [u8]>> {
    bytes.map(Cow::Borrowed)
}

impl UserState {
    pub(crate) fn start(of: &Arc<UserAggregation>) -> Self {
        Self {
            has_rows: false,
            state: of.aggregate.initial_state.clone(),
            of: of.clone(),
        }
    }

    /// Takes the arguments of one row, which are in a tuple. A state function that takes no null passes over rows with
    /// one.
    pub(crate) fn add(&mut self, row: Option<&[u8]>) -> Result<(), PlanError> {
        let count = self.of.aggregate.arguments.len();
        let mut arguments = Vec::with_capacity(count + 1);
        arguments.push(lend(self.state.as_deref()));
        for value in TupleIter::new(row.unwrap_or_default()).take(count) {
            let value =
                value.map_err(|_| PlanError::Internal("the arguments of an aggregate are no tuple".to_owned()))?;
            arguments.push(lend(value));
        }
        arguments.resize(count + 1, None);
        self.has_rows = true;
        if !self.of.state.called_on_null && arguments.iter().any(Option::is_none) {
            return Ok(());
        }
        self.state = call(&self.of.state, &arguments)?;
        Ok(())
    }

    /// Takes over what was found in the rows after its own.
    pub(crate) fn merge(&mut self, behind: Self) -> Result<(), PlanError> {
        if !behind.has_rows {
            return Ok(());
        }
        if !self.has_rows {
            *self = behind;
            return Ok(());
        }
        let reduce = self.of.reduce.clone();
        let reduce = reduce.ok_or_else(|| PlanError::Internal("the aggregate has no parts".to_owned()))?;
        if !reduce.called_on_null && (self.state.is_none() || behind.state.is_none()) {
            self.state = self.state.take().or(behind.state);
            return Ok(());
        }
        self.state = call(&reduce, &[lend(self.state.as_deref()), lend(behind.state.as_deref())])?;
        Ok(())
    }

    /// The value for the group.
    pub(crate) fn finish(self) -> Result<Option<Vec<u8>>, PlanError> {
        match &self.of.finish {
            Some(finish) => call(finish, &[lend(self.state.as_deref())]),
            None => Ok(self.state),
        }
    }
}
