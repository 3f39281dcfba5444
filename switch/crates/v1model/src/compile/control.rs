//! Controls: the graphs of tables, conditionals and action calls.

use super::action::Actions;
use super::condition::comparisons;
use super::objects::Objects;
use super::table::{Scope, Tables};
use crate::error::{At, LoadResult, refuse};
use crate::expr::Compiler;
use crate::model::{self, Root, by_name};
use crate::program::{Node, Relation};
use crate::trace::NodeLabel;

/// Both controls of a program.
pub(super) struct Controls {
    pub nodes: Vec<Node>,
    pub labels: Vec<NodeLabel>,
    /// The first node of ingress.
    pub ingress: u32,
    /// The first node of egress.
    pub egress: u32,
    pub tables: Tables,
}

/// Compiles the pipelines `ingress` and `egress`.
pub(super) fn controls(
    c: &mut Compiler<'_>,
    root: &Root,
    actions: Actions,
    objects: &mut Objects,
) -> LoadResult<Controls> {
    let mut tables = Tables::new(actions);
    let mut nodes = Vec::new();
    let mut labels = Vec::new();
    let mut pipeline = |name: &str| {
        let p = by_name(&root.pipelines, name, |p| &p.name)?;
        let compiled = pipeline(c, p, objects, &mut tables, &mut nodes);
        let (start, inverted) = compiled.at(|| format!("pipeline '{name}'"))?;
        labels.extend(node_labels(p, &tables, &inverted)?);
        Ok(start)
    };
    let (ingress, egress) = (pipeline("ingress")?, pipeline("egress")?);
    for p in &root.pipelines {
        if p.name != "ingress" && p.name != "egress" {
            refuse!("pipeline '{}' is not known in v1model", p.name);
        }
    }
    Ok(Controls {
        nodes,
        labels,
        ingress,
        egress,
        tables,
    })
}

/// Compiles a pipeline; returns its first node, and of each conditional whether its node tests the
/// opposite.
fn pipeline(
    c: &mut Compiler<'_>,
    p: &model::Pipeline,
    objects: &mut Objects,
    tables: &mut Tables,
    nodes: &mut Vec<Node>,
) -> LoadResult<(u32, Vec<bool>)> {
    for profile in &p.action_profiles {
        tables
            .add_profile(c.layout, objects, profile)
            .at(|| format!("action profile '{}'", profile.name))?;
    }
    let mut scope = Scope::new(nodes.len() as u32, p.name == "egress");
    let all = (p.tables.iter().map(|t| &t.name))
        .chain(p.conditionals.iter().map(|t| &t.name))
        .chain(p.action_calls.iter().map(|t| &t.name));
    for name in all {
        scope.add(name).at(|| format!("node '{name}'"))?;
    }
    for t in &p.tables {
        let place = || format!("table '{}'", t.name);
        nodes.push(tables.add(c.layout, objects, t, &scope).at(place)?);
    }
    let mut inverted = Vec::new();
    for k in &p.conditionals {
        let place = || format!("conditional '{}'", k.name);
        let (node, is_inverted) = conditional(c, k, &scope).at(place)?;
        nodes.push(node);
        inverted.push(is_inverted);
    }
    for k in &p.action_calls {
        let place = || format!("action call '{}'", k.name);
        nodes.push(action_call(k, tables, &scope).at(place)?);
    }
    let start = scope.node(&p.init_table).at(|| "init_table")?;
    refuse_cycles(nodes, tables, start, &scope)?;
    Ok((start, inverted))
}

/// The labels of a pipeline's nodes, in the order of the nodes. Its tables are the last that were
/// added. `inverted`: of each conditional whether its node tests the opposite.
fn node_labels(
    p: &model::Pipeline,
    tables: &Tables,
    inverted: &[bool],
) -> LoadResult<Vec<NodeLabel>> {
    let first = tables.tables.len() - p.tables.len();
    let mut labels: Vec<NodeLabel> = (first..tables.tables.len()).map(NodeLabel::Table).collect();
    let conditions = p.conditionals.iter().zip(inverted);
    labels.extend(conditions.map(|(k, is_inverted)| NodeLabel::Condition {
        name: k.name.clone(),
        source: k.source_info.clone(),
        is_inverted: *is_inverted,
    }));
    for k in &p.action_calls {
        let action = tables.actions.find(k.action_id, p.name == "egress")?;
        labels.push(NodeLabel::Action(action.public));
    }
    Ok(labels)
}

fn action_call(k: &model::ActionCallNode, tables: &Tables, scope: &Scope) -> LoadResult<Node> {
    let action = tables.actions.find(k.action_id, scope.egress)?;
    if !action.params.is_empty() {
        refuse!("action '{}' takes parameters", action.name);
    }
    Ok(Node::Action {
        code: action.code,
        next: scope.node(&k.next_node)?,
    })
}

/// The node of a conditional, and whether it tests the opposite.
fn conditional(
    c: &mut Compiler<'_>,
    k: &model::Conditional,
    scope: &Scope,
) -> LoadResult<(Node, bool)> {
    c.free_temps();
    let start = c.here();
    let node = c.node(&k.expression.kind, &k.expression.value)?;
    let slot = c.condition(node)?;
    let yes = scope.node(&k.true_next).at(|| "true_next")?;
    let no = scope.node(&k.false_next).at(|| "false_next")?;
    let node = match comparisons(c, start, slot)?.as_deref() {
        Some(&[test]) => match (test.relation, test.a, test.b) {
            (Relation::Eq, a, b) => Node::IfEqual { a, b, yes, no },
            (Relation::Ne, a, b) => {
                let (yes, no) = (no, yes);
                return Ok((Node::IfEqual { a, b, yes, no }, true));
            }
            _ => Node::If { test, yes, no },
        },
        Some(&[first, second]) => Node::IfBoth {
            tests: [first, second],
            yes,
            no,
        },
        _ => Node::Branch {
            code: c.since(start),
            slot,
            yes,
            no,
        },
    };
    Ok((node, false))
}

/// Refuses a graph with a cycle, in which a packet would never end.
fn refuse_cycles(nodes: &[Node], tables: &Tables, start: u32, scope: &Scope) -> LoadResult<()> {
    #[derive(Clone, Copy)]
    enum Mark {
        New,
        OnPath,
        Done,
    }
    let mut marks = vec![Mark::New; nodes.len()];
    let mut path = vec![(start, 0)];
    while let Some((node, edge)) = path.last_mut() {
        let at = *node as usize;
        let edges = nodes.get(at).map(|node| edges(node, tables));
        let next = edges.and_then(|edges| edges.get(*edge).copied());
        *edge += 1;
        match next {
            None => {
                // The end of the control is no node.
                if let Some(mark) = marks.get_mut(at) {
                    *mark = Mark::Done;
                }
                path.pop();
            }
            Some(next) => {
                marks[at] = Mark::OnPath;
                match marks.get(next as usize) {
                    Some(Mark::New) => path.push((next, 0)),
                    Some(Mark::OnPath) => refuse!(
                        "control flow comes back to '{}': loops are not possible in P4",
                        scope.name_of(next)
                    ),
                    Some(Mark::Done) | None => {}
                }
            }
        }
    }
    Ok(())
}

/// The nodes that may come after a node.
fn edges(node: &Node, tables: &Tables) -> Vec<u32> {
    match *node {
        Node::Action { next, .. } => vec![next],
        Node::Branch { yes, no, .. }
        | Node::IfEqual { yes, no, .. }
        | Node::If { yes, no, .. }
        | Node::IfBoth { yes, no, .. } => vec![yes, no],
        Node::Table(index) => {
            let t = &tables.tables[index as usize];
            let mut edges: Vec<u32> = t.spec.actions.iter().map(|a| a.next).collect();
            edges.extend(t.spec.next_hit);
            edges.extend(t.spec.next_miss);
            edges.push(t.spec.base_next);
            edges
        }
    }
}
