//! Values, and actions with their arguments.

/// A value of known width, big-endian, `(bits + 7) / 8` bytes, unused high bits zero.
pub type Bits = Box<[u8]>;

/// An action's static description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionInfo {
    /// Fully qualified P4 name.
    pub name: String,
    /// Parameter names and widths in bits.
    pub params: Vec<(String, u32)>,
}

/// An action with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionCall {
    /// Index into [`crate::Pipeline::actions`].
    pub action: usize,
    /// Arguments in declaration order, each as wide as its parameter.
    pub args: Vec<Bits>,
}
