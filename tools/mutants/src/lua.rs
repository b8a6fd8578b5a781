//! The mistakes of a Lua script.

use crate::mistake::{Mistake, Switch};
use full_moon::ast::{BinOp, Block, ElseIf, Expression, If, Stmt, UnOp};
use full_moon::node::Node;
use full_moon::tokenizer::TokenType;
use full_moon::visitors::Visitor;
use std::error::Error;
use std::ops::Range;

/// A statement in place of one that is left out.
const NOTHING: &str = "do end";

pub(crate) fn mistakes_of(text: &str) -> Result<Vec<Mistake>, Box<dyn Error>> {
    let parsed = full_moon::parse(text)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let mut finder = Finder { text, found: Vec::new() };
    finder.visit_ast(&parsed);
    Ok(finder.found)
}

struct Finder<'a> {
    text: &'a str,
    found: Vec<Mistake>,
}

impl Finder<'_> {
    fn range(node: &impl Node) -> Option<Range<usize>> {
        Some(node.start_position()?.bytes()..node.end_position()?.bytes())
    }

    /// A change of `node`, told with the expression or statement around it.
    fn add(&mut self, kind: &'static str, node: &impl Node, around: &impl Node, text: &str) {
        let (Some(span), Some(shown)) = (Self::range(node), Self::range(around)) else { return };
        let line = self.text[..span.start].matches('\n').count() + 1;
        let was = self.text[shown.clone()].to_owned();
        let start = &self.text[shown.start..span.start];
        let becomes = format!("{start}{text}{}", &self.text[span.end..shown.end]);
        let switch = Switch { before: text.to_owned(), after: "" };
        self.found.push(Mistake::new(kind, line, was, becomes, span, switch));
    }

    fn negate(&mut self, condition: &Expression) {
        let Some(span) = Self::range(condition) else { return };
        let text = format!("not ({})", &self.text[span]);
        self.add("branch", condition, condition, &text);
    }

    fn exchange(&mut self, operator: &BinOp, whole: &Expression) {
        let (kind, becomes) = match operator {
            BinOp::LessThan(_) => ("comparison", "<="),
            BinOp::LessThanEqual(_) => ("comparison", "<"),
            BinOp::GreaterThan(_) => ("comparison", ">="),
            BinOp::GreaterThanEqual(_) => ("comparison", ">"),
            BinOp::TwoEqual(_) => ("comparison", "~="),
            BinOp::TildeEqual(_) => ("comparison", "=="),
            BinOp::And(_) => ("boolean", "or"),
            BinOp::Or(_) => ("boolean", "and"),
            BinOp::Plus(_) => ("arithmetic", "-"),
            BinOp::Minus(_) => ("arithmetic", "+"),
            BinOp::Star(_) => ("arithmetic", "/"),
            BinOp::Slash(_) | BinOp::Percent(_) => ("arithmetic", "*"),
            _ => return,
        };
        self.add(kind, operator.token(), whole, becomes);
    }
}

impl Visitor for Finder<'_> {
    fn visit_block(&mut self, block: &Block) {
        for statement in block.stmts() {
            match statement {
                Stmt::FunctionCall(it) => self.add("removed call", it, it, NOTHING),
                Stmt::Assignment(it) => self.add("removed assignment", it, it, NOTHING),
                _ => {}
            }
        }
    }

    fn visit_if(&mut self, it: &If) {
        self.negate(it.condition());
    }

    fn visit_else_if(&mut self, it: &ElseIf) {
        self.negate(it.condition());
    }

    fn visit_expression(&mut self, it: &Expression) {
        match it {
            Expression::BinaryOperator { binop, .. } => self.exchange(binop, it),
            Expression::UnaryOperator { unop: UnOp::Not(token), .. } => {
                self.add("negation", token, it, "");
            }
            Expression::Number(token) => {
                if let TokenType::Number { text } = token.token_type()
                    && let Ok(number) = text.parse::<u64>()
                {
                    self.add("constant", token, token, &(number + 1).to_string());
                }
            }
            _ => {}
        }
    }
}
