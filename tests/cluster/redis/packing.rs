//! `struct.pack` and `struct.unpack`, as far as the scripts use them: big-endian integers of 1 to 8 bytes.
//!
//! All numbers of Lua are doubles. Invariant: a number that fits into its bytes and into 53 bits comes back as it was.

/// An integer of a format.
#[derive(Clone, Copy)]
pub(super) struct Field {
    is_signed: bool,
    pub(super) size: usize,
}

/// The integers of a format.
pub(super) fn fields(format: &[u8]) -> impl Iterator<Item = Field> {
    let mut rest = format.strip_prefix(b">").unwrap_or_else(|| unknown(format));
    std::iter::from_fn(move || {
        let [kind, digit @ b'1'..=b'8', after @ ..] = rest else {
            return if rest.is_empty() { None } else { unknown(format) };
        };
        let is_signed = match kind {
            b'i' => true,
            b'I' => false,
            _ => unknown(format),
        };
        rest = after;
        Some(Field { is_signed, size: usize::from(digit - b'0') })
    })
}

fn unknown(format: &[u8]) -> ! {
    panic!("the model does not have the format {}", format.escape_ascii())
}

impl Field {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as C does it")]
    pub(super) fn write(self, number: f64, to: &mut Vec<u8>) {
        let bits = if number < 0.0 { (number as i64).cast_unsigned() } else { number as u64 };
        to.extend_from_slice(&bits.to_be_bytes()[8 - self.size..]);
    }

    /// The number that begins `bytes`.
    #[allow(clippy::cast_precision_loss, reason = "the numbers of Lua are doubles")]
    pub(super) fn read(self, bytes: &[u8]) -> f64 {
        let mut wide = [0; 8];
        wide[8 - self.size..].copy_from_slice(&bytes[..self.size]);
        let bits = u64::from_be_bytes(wide);
        if self.is_signed {
            let unused = 64 - 8 * self.size;
            (bits.cast_signed() << unused >> unused) as f64
        } else {
            bits as f64
        }
    }
}
