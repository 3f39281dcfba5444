//! The control plane's access to hashes whose parameters can be set.

use crate::entries::ControlResult;
use crate::entries::error::{invalid, not_found};
use crate::hash::{CrcParameters, CustomCrc};
use crate::pipeline::Pipeline;

impl Pipeline {
    /// Sets the parameters of a CRC of `bits` bits (`crc16_custom`, `crc32_custom`). `calculation` is
    /// its number in the program's list of calculations.
    ///
    /// # Errors
    /// There is no such calculation, or it is no such CRC.
    pub fn crc_set(
        &mut self,
        calculation: usize,
        bits: u32,
        parameters: CrcParameters,
    ) -> ControlResult<()> {
        let Some(found) = self.program.calculations.get_mut(calculation) else {
            return not_found(format!("no calculation number {calculation}"));
        };
        if found.custom_bits() != Some(bits) {
            return invalid(format!(
                "calculation number {calculation} is no CRC of {bits} bits with parameters to set"
            ));
        }
        found.set_custom(CustomCrc::new(bits, parameters));
        Ok(())
    }
}
