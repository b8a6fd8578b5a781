//! The mistakes of a Rust source. Constants, patterns, types and macros stay as they are, and so does what is only compiled
//! for tests or for other machines.

use crate::cfg::is_compiled;
use crate::mistake::{Mistake, Switch};
use proc_macro2::Span;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Arm, BinOp, Block, Expr, ExprBinary, ExprLit, ExprMethodCall, ExprUnary, Item, Lit, Local, Pat,
    ReturnType, Signature, Stmt, Type, UnOp,
};

/// Does nothing in an addon without faults.
const FAULT: &str = "faults::at(";
/// Methods that are taken for each other.
const EXCHANGED: [(&str, &str); 15] = [
    ("all", "any"),
    ("back", "front"),
    ("first", "last"),
    ("is_err", "is_ok"),
    ("is_none", "is_some"),
    ("is_none_or", "is_some_and"),
    ("max", "min"),
    ("max_by_key", "min_by_key"),
    ("pop", "last_mut"),
    ("pop_back", "pop_front"),
    ("push_back", "push_front"),
    ("saturating_add", "saturating_sub"),
    ("skip_while", "take_while"),
    ("starts_with", "ends_with"),
    ("and", "or"),
];

pub(crate) fn mistakes_of(text: &str) -> syn::Result<Vec<Mistake>> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder { text, found: Vec::new() };
    finder.visit_file(&file);
    Ok(finder.found)
}

struct Finder<'a> {
    text: &'a str,
    found: Vec<Mistake>,
}

impl<'a> Finder<'a> {
    fn text(&self, part: &impl Spanned) -> &'a str {
        &self.text[part.span().byte_range()]
    }

    fn add(&mut self, kind: &'static str, span: Span, was: &str, becomes: &str, switch: Switch) {
        self.add_at(kind, span.byte_range(), span.start().line, was, becomes, switch);
    }

    fn add_at(
        &mut self,
        kind: &'static str,
        span: Range<usize>,
        line: usize,
        was: &str,
        becomes: &str,
        switch: Switch,
    ) {
        let [was, becomes] =
            [was, becomes].map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "));
        self.found.push(Mistake::new(kind, line, was, becomes, span, switch));
    }

    /// An expression that is another one while the switch is on.
    fn replace(&mut self, kind: &'static str, expression: &Expr, becomes: &str) {
        let before = format!("(if crate::mutant::on(\0) {{ {becomes} }} else {{ ");
        let was = self.text(expression);
        self.add(kind, expression.span(), was, becomes, Switch { before, after: " })" });
    }

    /// A condition that is negated, also one of several in a row with `let`.
    fn negate(&mut self, condition: &Expr) {
        match condition {
            // These have their own mistakes, which are the same.
            Expr::Unary(ExprUnary { op: UnOp::Not(_), .. })
            | Expr::Binary(ExprBinary { op: BinOp::Eq(_) | BinOp::Ne(_), .. })
            | Expr::Let(_) => {}
            Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. })
                if has_let(condition) =>
            {
                self.negate(left);
                self.negate(right);
            }
            _ => {
                let before = "(crate::mutant::on(\0) != (".to_owned();
                let was = self.text(condition);
                let becomes = format!("!({was})");
                self.add("branch", condition.span(), was, &becomes, Switch { before, after: "))" });
            }
        }
    }

    /// A body of which nothing is done.
    fn leave_out_body(&mut self, signature: &Signature, body: &Block) {
        let head = body.brace_token.span.open().byte_range().end;
        let now = body.stmts.iter().map(|it| self.text(it)).collect::<Vec<_>>().join(" ");
        for value in values_of(&signature.output) {
            if now.is_empty() || now == *value {
                continue;
            }
            let before = format!(" if crate::mutant::on(\0) {{ return {value}; }} ");
            let line = signature.ident.span().start().line;
            let was = format!("fn {}", signature.ident);
            self.add_at("body", head..head, line, &was, value, Switch { before, after: "" });
        }
    }

    fn function(&mut self, signature: &Signature, body: &Block) {
        if signature.constness.is_some() {
            return;
        }
        self.leave_out_body(signature, body);
        self.visit_block(body);
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Fn(it) if is_compiled(&it.attrs) => self.function(&it.sig, &it.block),
            Item::Impl(it) if is_compiled(&it.attrs) => visit::visit_item_impl(self, it),
            Item::Mod(it) if is_compiled(&it.attrs) => visit::visit_item_mod(self, it),
            Item::Trait(it) if is_compiled(&it.attrs) => visit::visit_item_trait(self, it),
            _ => {}
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if let syn::ImplItem::Fn(it) = item
            && is_compiled(&it.attrs)
        {
            self.function(&it.sig, &it.block);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        if let syn::TraitItem::Fn(it) = item
            && is_compiled(&it.attrs)
            && let Some(body) = &it.default
        {
            self.function(&it.sig, body);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement {
            let kind = match expression {
                Expr::Assign(_) => Some("removed assignment"),
                it if is_call(it) && !self.text(it).starts_with(FAULT) => Some("removed call"),
                _ => None,
            };
            if let Some(kind) = kind {
                let before = "if !crate::mutant::on(\0) { ".to_owned();
                let was = self.text(statement);
                self.add(kind, statement.span(), was, ";", Switch { before, after: " }" });
            }
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if let Some(init) = local.init.as_ref().filter(|_| is_compiled(&local.attrs)) {
            visit::visit_local_init(self, init);
        }
    }

    fn visit_expr_binary(&mut self, it: &'ast ExprBinary) {
        let whole = Expr::Binary(it.clone());
        if let Some((kind, becomes)) = exchanged(&it.op).filter(|_| !has_let(&whole)) {
            let [left, right] = [&it.left, &it.right].map(|side| self.text(&**side));
            // A value that is assigned to stands without parentheses.
            let changed = if becomes.ends_with('=') && kind == "arithmetic" {
                format!("{left} {becomes} {right}")
            } else {
                format!("({left}) {becomes} ({right})")
            };
            self.replace(kind, &whole, &changed);
        }
        visit::visit_expr_binary(self, it);
    }

    fn visit_expr_unary(&mut self, it: &'ast ExprUnary) {
        if matches!(it.op, UnOp::Not(_) | UnOp::Neg(_)) {
            let inner = self.text(&*it.expr).to_owned();
            self.replace("negation", &Expr::Unary(it.clone()), &inner);
        }
        visit::visit_expr_unary(self, it);
    }

    fn visit_expr_lit(&mut self, it: &'ast ExprLit) {
        let becomes = match &it.lit {
            Lit::Bool(value) => (!value.value).to_string(),
            Lit::Int(value) => match value.base10_parse::<u128>() {
                Ok(number) => format!("{}{}", number + 1, value.suffix()),
                Err(_) => return,
            },
            _ => return,
        };
        self.replace("constant", &Expr::Lit(it.clone()), &becomes);
    }

    fn visit_expr_method_call(&mut self, it: &'ast ExprMethodCall) {
        let name = it.method.to_string();
        for (one, other) in EXCHANGED {
            let becomes = if name == one { other } else { one };
            if name != one && name != other {
                continue;
            }
            let whole = it.span().byte_range();
            let method = it.method.span().byte_range();
            let start = &self.text[whole.start..method.start];
            let changed = format!("{start}{becomes}{}", &self.text[method.end..whole.end]);
            self.replace("exchanged call", &Expr::MethodCall(it.clone()), &changed);
        }
        // Not the type arguments: those are constants.
        self.visit_expr(&it.receiver);
        it.args.iter().for_each(|each| self.visit_expr(each));
    }

    fn visit_expr_if(&mut self, it: &'ast syn::ExprIf) {
        self.negate(&it.cond);
        visit::visit_expr_if(self, it);
    }

    fn visit_expr_match(&mut self, it: &'ast syn::ExprMatch) {
        let has_rest =
            it.arms.iter().any(|arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none());
        for arm in it.arms.iter().filter(|arm| is_compiled(&arm.attrs)) {
            if has_rest && !matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none() {
                let end = arm.pat.span().byte_range().end;
                let before = " if !crate::mutant::on(\0)".to_owned();
                let line = arm.pat.span().start().line;
                let was = format!("{} =>", self.text(&arm.pat));
                self.add_at("removed arm", end..end, line, &was, "", Switch { before, after: "" });
            }
        }
        visit::visit_expr_match(self, it);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        if !is_compiled(&arm.attrs) {
            return;
        }
        if let Some((_, guard)) = &arm.guard {
            self.negate(guard);
            self.visit_expr(guard);
        }
        self.visit_expr(&arm.body);
    }

    fn visit_expr_let(&mut self, it: &'ast syn::ExprLet) {
        self.visit_expr(&it.expr);
    }

    fn visit_expr_closure(&mut self, it: &'ast syn::ExprClosure) {
        self.visit_expr(&it.body);
    }

    fn visit_expr_for_loop(&mut self, it: &'ast syn::ExprForLoop) {
        self.visit_expr(&it.expr);
        self.visit_block(&it.body);
    }

    fn visit_expr_repeat(&mut self, it: &'ast syn::ExprRepeat) {
        self.visit_expr(&it.expr);
    }

    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_path(&mut self, _: &'ast syn::Path) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

fn exchanged(operator: &BinOp) -> Option<(&'static str, &'static str)> {
    Some(match operator {
        BinOp::Lt(_) => ("comparison", "<="),
        BinOp::Le(_) => ("comparison", "<"),
        BinOp::Gt(_) => ("comparison", ">="),
        BinOp::Ge(_) => ("comparison", ">"),
        BinOp::Eq(_) => ("comparison", "!="),
        BinOp::Ne(_) => ("comparison", "=="),
        BinOp::And(_) => ("boolean", "||"),
        BinOp::Or(_) => ("boolean", "&&"),
        BinOp::Add(_) => ("arithmetic", "-"),
        BinOp::Sub(_) => ("arithmetic", "+"),
        BinOp::Mul(_) => ("arithmetic", "/"),
        BinOp::Div(_) | BinOp::Rem(_) => ("arithmetic", "*"),
        BinOp::BitAnd(_) => ("arithmetic", "|"),
        BinOp::BitOr(_) | BinOp::BitXor(_) => ("arithmetic", "&"),
        BinOp::Shl(_) => ("arithmetic", ">>"),
        BinOp::Shr(_) => ("arithmetic", "<<"),
        BinOp::AddAssign(_) => ("arithmetic", "-="),
        BinOp::SubAssign(_) => ("arithmetic", "+="),
        BinOp::MulAssign(_) => ("arithmetic", "/="),
        BinOp::BitAndAssign(_) => ("arithmetic", "|="),
        BinOp::BitOrAssign(_) => ("arithmetic", "&="),
        _ => return None,
    })
}

fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(it) => has_let(&it.left) || has_let(&it.right),
        _ => false,
    }
}

fn is_call(expression: &Expr) -> bool {
    match expression {
        Expr::Call(_) | Expr::MethodCall(_) => true,
        Expr::Await(it) => is_call(&it.base),
        Expr::Try(it) => is_call(&it.expr),
        _ => false,
    }
}

/// What a function of this type may answer without doing anything.
fn values_of(output: &ReturnType) -> &'static [&'static str] {
    let ReturnType::Type(_, output) = output else { return &["()"] };
    let Type::Path(path) = &**output else { return &[] };
    let Some(last) = path.path.segments.last() else { return &[] };
    match last.ident.to_string().as_str() {
        "bool" => &["true", "false"],
        "Option" => &["None"],
        "Result" => &["Ok(Default::default())"],
        _ => &["Default::default()"],
    }
}
