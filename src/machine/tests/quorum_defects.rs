//! Defects of a quorum that its simulator must find: each is one that an implementation of Redlock has, or
//! has had. As `defects.rs`.

use super::defects::{self, Change, Defect, SEEDS, script};
use super::quorum::{Kind, Simulation};
use crate::script::Script;

const DEFECTS: &[(&str, Kind, Change)] = &[
    (
        "two attempts may have the same fence",
        Kind::Hasty,
        script("tonumber(counter) >= tonumber(first)", "tonumber(counter) > tonumber(first)"),
    ),
    (
        "round two is asked again, and its repeat accepted",
        Kind::Hasty,
        script(
            "if counter and tonumber(counter) >= tonumber(first) then",
            "if counter and counter ~= last and tonumber(counter) >= tonumber(first) then",
        ),
    ),
    (
        "the highest counter that was read is the fence, without a second round",
        Kind::Hasty,
        script(
            "  return 0\nend\n-- Strictly below: two attempts may have computed the same fence, and one \
             of them gets it.\nif counter and tonumber(counter) >= tonumber(first) then\n  return 0\nend",
            "end",
        ),
    ),
    (
        "an earlier attempt's release frees a later one",
        Kind::Steady,
        script(
            "if holder ~= token and holder ~= token .. '+' then\n  return 0\nend\nredis.call('DEL', \
             lock_key)\n-- The mark",
            "if not holder or holder:match('^(.*)%.%d+') ~= token:match('^(.*)%.%d+') then\n  return \
             0\nend\nredis.call('DEL', lock_key)\n-- The mark",
        ),
    ),
    (
        "an own key of an earlier attempt is another's, and nothing takes it away",
        Kind::Steady,
        script(
            "if holder ~= token and holder ~= token .. '+' then\n  return 0\nend\nredis.call('DEL', lock_key)\n-- The mark",
            "if true then return 0 end\n-- The mark",
        ),
    ),
    ("a held lock is taken", Kind::Steady, script("if owner ~= token or", "if false or")),
    ("validity counts from the answer", Kind::Steady, Change::Machine(Defect::ValidFromReply)),
    ("a server that forgot votes at once", Kind::Losing, Change::Machine(Defect::VotesAtOnce)),
];

#[test]
fn every_defect_of_a_quorum_is_found() {
    defects::silence_expected_panics();
    let whole = Script::ALL.map(Script::source).concat();
    let mut missed = Vec::new();
    for (defect, kind, change) in DEFECTS {
        if let Change::Script { right, .. } = change {
            assert!(whole.contains(right), "{defect}: no script contains {right:?}");
        }
        defects::set(Some(*change));
        let goes_wrong =
            |seed: &u64| std::panic::catch_unwind(|| Simulation::new(*seed, *kind).run()).is_err();
        let found = (0..SEEDS).find(goes_wrong);
        defects::set(None);
        match found {
            Some(seed) => println!("{defect}: seed {seed}"),
            None => missed.push(defect),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
}
