//! `frwr check sizing`.

use clap::Args;
use frwr_engine::provider::DeviceAttributes;
use frwr_engine::sizing::{DEFAULT_REQUESTS, MAX_REQUESTS, SizingError, Wishes, size};
use serde_json::json;

/// RDMA READs outstanding per queue pair; sizing does not read it, but a device has some.
const RDMA_READS: u32 = 16;

/// A device by its attributes, and what is wished of it.
#[derive(Clone, Copy, Debug, Args)]
// So that they are told the limits of their option.
#[command(allow_negative_numbers = true)]
pub struct SizingArguments {
    /// Entries of one fast registration's page list (max_fast_reg_page_list_len).
    #[arg(long, value_name = "N", value_parser = number)]
    pub page_list_len: u32,
    /// Scatter elements of one RDMA READ (max_sge_rd).
    #[arg(long, value_name = "N", value_parser = number)]
    pub max_sge_rd: u32,
    /// Scatter elements of one SEND (max_send_sge).
    #[arg(long, value_name = "N", value_parser = number)]
    pub max_sge: u32,
    /// Work requests that one queue holds (max_qp_wr).
    #[arg(long, value_name = "N", value_parser = number)]
    pub max_qp_wr: u32,
    /// The device registers lists with gaps (IBK_SG_GAPS_REG).
    #[arg(long)]
    pub sg_gaps: bool,
    /// The device has no memory management extensions.
    #[arg(long)]
    pub no_memory_extensions: bool,
    /// Requests in flight that are wished for.
    #[arg(long, value_name = "N", value_parser = requests, default_value_t = DEFAULT_REQUESTS)]
    pub requests: u32,
    /// Bytes per page, a power of two.
    #[arg(long, value_name = "BYTES", value_parser = page_size, default_value_t = 4096)]
    pub page_size: u32,
}

/// Smallest page of the architectures that Linux runs on.
const MIN_PAGE_SIZE: u32 = 4096;
/// Largest page that a page list is counted in.
const MAX_PAGE_SIZE: u32 = 1 << 30;

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("give a whole number from 0 to {}", u32::MAX))
}

fn requests(text: &str) -> Result<u32, String> {
    let allowed = 1..=MAX_REQUESTS;
    text.parse().ok().filter(|value| allowed.contains(value)).ok_or(format!("give a number from 1 to {MAX_REQUESTS}"))
}

fn page_size(text: &str) -> Result<u32, String> {
    let allowed = MIN_PAGE_SIZE..=MAX_PAGE_SIZE;
    let parsed = text.parse().ok().filter(|size: &u32| size.is_power_of_two() && allowed.contains(size));
    parsed.ok_or(format!("give a power of two from {MIN_PAGE_SIZE} to {MAX_PAGE_SIZE}"))
}

impl SizingArguments {
    fn attributes(&self) -> DeviceAttributes {
        DeviceAttributes {
            memory_management_extensions: !self.no_memory_extensions,
            max_fast_reg_page_list_len: self.page_list_len,
            sg_gaps: self.sg_gaps,
            max_send_sge: self.max_sge,
            max_sge_rd: self.max_sge_rd,
            max_qp_wr: self.max_qp_wr,
            // Not limits that this question is about.
            max_cqe: u32::MAX,
            max_registrations: u32::MAX,
            max_rdma_reads: RDMA_READS,
            max_srq: 0,
            max_srq_wr: 0,
        }
    }
}

/// What the engine would ask of the device, as text or as one line of JSON.
///
/// # Errors
/// The gate that the device does not pass.
pub fn sizing_output(arguments: &SizingArguments, json: bool) -> Result<String, SizingError> {
    let wishes = Wishes::default().requests(arguments.requests).page_size(arguments.page_size);
    let sizing = size(&arguments.attributes(), &wishes)?;
    let fields = [
        ("max_send_wr", sizing.max_send_wr),
        ("max_recv_wr", sizing.max_recv_wr),
        ("max_requests", sizing.max_requests),
        ("mr_depth", sizing.mr_depth),
        ("work_requests_per_request", sizing.work_requests_per_request),
        ("max_rdma_segments", sizing.max_rdma_segments),
    ];
    if json {
        let mut object: serde_json::Map<_, _> =
            fields.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        object.insert("mr_type".to_owned(), json!(sizing.mr_type.name()));
        return Ok(serde_json::Value::Object(object).to_string());
    }
    let mut text: String = fields.iter().map(|(name, value)| format!("{name:<26}{value}\n")).collect();
    text.push_str(&format!("{:<26}{}\n", "mr_type", sizing.mr_type.name()));
    Ok(text)
}
