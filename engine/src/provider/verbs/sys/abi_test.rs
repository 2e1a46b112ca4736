//! What this module declares by hand, against the headers that are installed, and for libmlx5 those that ibverbs-sys carries,
//! which are newer: a C program prints sizes, offsets and values.

use super::{
    cm_abi::{
        ConnectionParameters, DatagramParameters, Event, EventChannel, EventParameters, Identifier, RDMA_PS_TCP, event,
    },
    mlx5_abi::{
        DISABLE_SCATTER_TO_COMPLETION, DynamicallyConnected, MASK_CREATE_FLAGS, MASK_SEND_OPERATIONS, MKEY_INDIRECT,
        MKEY_REMOTE_INVALIDATE, MKEY_UPDATE_TAG, Mkey, MkeyAttributes, QueuePairAttributes, QueuePairEx, WITH_LIST,
    },
    verbs_abi::ContextHead,
};
use core::mem::offset_of;
use ibverbs_sys::ibv_context;
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

/// The C compiler of every Debian and of the linker that Rust needs.
const COMPILER: &str = "cc";
/// Name, C expression, and our value.
type Row = (&'static str, usize);

macro_rules! offset {
    ($c:literal, $member:literal, $rust:ty, $field:ident) => {
        (concat!("offsetof(struct ", $c, ", ", $member, ")"), offset_of!($rust, $field))
    };
}

/// How far a member of `struct verbs_context` lies in front of the `ibv_context` at its end.
macro_rules! before_context {
    ($member:literal, $field:ident) => {
        (
            concat!("offsetof(struct verbs_context, context) - offsetof(struct verbs_context, ", $member, ")"),
            size_of::<ContextHead>() - offset_of!(ContextHead, $field),
        )
    };
}

fn rows() -> Vec<Row> {
    let value = |value: i32| usize::try_from(value).expect("an enumerator");
    vec![
        ("sizeof(struct rdma_event_channel)", size_of::<EventChannel>()),
        offset!("rdma_event_channel", "fd", EventChannel, fd),
        offset!("rdma_cm_id", "verbs", Identifier, verbs),
        offset!("rdma_cm_id", "route.addr.src_addr", Identifier, source),
        ("sizeof(((struct rdma_cm_id *)0)->route.addr.src_storage)", size_of::<libc::sockaddr_storage>()),
        offset!("rdma_cm_id", "route.addr.dst_addr", Identifier, destination),
        ("sizeof(((struct rdma_cm_id *)0)->route.addr.dst_storage)", size_of::<libc::sockaddr_storage>()),
        ("sizeof(struct rdma_conn_param)", size_of::<ConnectionParameters>()),
        offset!("rdma_conn_param", "private_data", ConnectionParameters, private_data),
        offset!("rdma_conn_param", "private_data_len", ConnectionParameters, private_data_len),
        offset!("rdma_conn_param", "responder_resources", ConnectionParameters, responder_resources),
        offset!("rdma_conn_param", "initiator_depth", ConnectionParameters, initiator_depth),
        offset!("rdma_conn_param", "flow_control", ConnectionParameters, flow_control),
        offset!("rdma_conn_param", "retry_count", ConnectionParameters, retry_count),
        offset!("rdma_conn_param", "rnr_retry_count", ConnectionParameters, rnr_retry_count),
        offset!("rdma_conn_param", "srq", ConnectionParameters, srq),
        offset!("rdma_conn_param", "qp_num", ConnectionParameters, qp_num),
        ("sizeof(struct rdma_ud_param)", size_of::<DatagramParameters>()),
        ("sizeof(struct rdma_cm_event)", size_of::<Event>()),
        offset!("rdma_cm_event", "id", Event, id),
        offset!("rdma_cm_event", "listen_id", Event, listen_id),
        offset!("rdma_cm_event", "event", Event, event),
        offset!("rdma_cm_event", "status", Event, status),
        offset!("rdma_cm_event", "param.conn", Event, param),
        ("sizeof(((struct rdma_cm_event *)0)->param)", size_of::<EventParameters>()),
        ("RDMA_PS_TCP", value(RDMA_PS_TCP)),
        ("RDMA_CM_EVENT_ADDR_RESOLVED", value(event::ADDR_RESOLVED)),
        ("RDMA_CM_EVENT_ADDR_ERROR", value(event::ADDR_ERROR)),
        ("RDMA_CM_EVENT_ROUTE_RESOLVED", value(event::ROUTE_RESOLVED)),
        ("RDMA_CM_EVENT_ROUTE_ERROR", value(event::ROUTE_ERROR)),
        ("RDMA_CM_EVENT_CONNECT_REQUEST", value(event::CONNECT_REQUEST)),
        ("RDMA_CM_EVENT_CONNECT_RESPONSE", value(event::CONNECT_RESPONSE)),
        ("RDMA_CM_EVENT_CONNECT_ERROR", value(event::CONNECT_ERROR)),
        ("RDMA_CM_EVENT_UNREACHABLE", value(event::UNREACHABLE)),
        ("RDMA_CM_EVENT_REJECTED", value(event::REJECTED)),
        ("RDMA_CM_EVENT_ESTABLISHED", value(event::ESTABLISHED)),
        ("RDMA_CM_EVENT_DISCONNECTED", value(event::DISCONNECTED)),
        ("RDMA_CM_EVENT_DEVICE_REMOVAL", value(event::DEVICE_REMOVAL)),
        before_context!("create_qp_ex", create_qp_ex),
        before_context!("sz", bytes),
        before_context!("query_device_ex", query_device_ex),
        before_context!("create_cq_ex", create_cq_ex),
        before_context!("alloc_td", alloc_td),
        before_context!("dealloc_td", dealloc_td),
        before_context!("alloc_parent_domain", alloc_parent_domain),
        ("sizeof(struct ibv_context)", size_of::<ibv_context>()),
        // It is the last member.
        ("sizeof(struct verbs_context) - offsetof(struct verbs_context, context)", size_of::<ibv_context>()),
    ]
}

fn mlx5_rows() -> Vec<Row> {
    let flag = |value: u32| value as usize;
    let mask = |value: u64| usize::try_from(value).expect("64 bits");
    vec![
        ("sizeof(struct mlx5dv_mkey_init_attr)", size_of::<MkeyAttributes>()),
        offset!("mlx5dv_mkey_init_attr", "pd", MkeyAttributes, pd),
        offset!("mlx5dv_mkey_init_attr", "create_flags", MkeyAttributes, create_flags),
        offset!("mlx5dv_mkey_init_attr", "max_entries", MkeyAttributes, max_entries),
        ("sizeof(struct mlx5dv_mkey)", size_of::<Mkey>()),
        offset!("mlx5dv_mkey", "lkey", Mkey, lkey),
        offset!("mlx5dv_mkey", "rkey", Mkey, rkey),
        ("sizeof(struct mlx5dv_dc_init_attr)", size_of::<DynamicallyConnected>()),
        offset!("mlx5dv_dc_init_attr", "dct_access_key", DynamicallyConnected, dct_access_key),
        ("sizeof(struct mlx5dv_qp_init_attr)", size_of::<QueuePairAttributes>()),
        offset!("mlx5dv_qp_init_attr", "comp_mask", QueuePairAttributes, comp_mask),
        offset!("mlx5dv_qp_init_attr", "create_flags", QueuePairAttributes, create_flags),
        offset!("mlx5dv_qp_init_attr", "dc_init_attr", QueuePairAttributes, dc_init_attr),
        offset!("mlx5dv_qp_init_attr", "send_ops_flags", QueuePairAttributes, send_ops_flags),
        offset!("mlx5dv_qp_ex", "comp_mask", QueuePairEx, comp_mask),
        offset!("mlx5dv_qp_ex", "wr_set_dc_addr", QueuePairEx, wr_set_dc_addr),
        offset!("mlx5dv_qp_ex", "wr_mr_interleaved", QueuePairEx, wr_mr_interleaved),
        offset!("mlx5dv_qp_ex", "wr_mr_list", QueuePairEx, wr_mr_list),
        // The end of what is declared.
        ("offsetof(struct mlx5dv_qp_ex, wr_mkey_configure)", size_of::<QueuePairEx>()),
        ("MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT", flag(MKEY_INDIRECT)),
        ("MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG", flag(MKEY_UPDATE_TAG)),
        ("MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE", flag(MKEY_REMOTE_INVALIDATE)),
        ("MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS", mask(MASK_CREATE_FLAGS)),
        ("MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS", mask(MASK_SEND_OPERATIONS)),
        ("MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE", flag(DISABLE_SCATTER_TO_COMPLETION)),
        ("MLX5DV_QP_EX_WITH_MR_LIST", mask(WITH_LIST)),
        // The type of the one member that is called, in words of C: a compiler error where it has another.
        (
            "__builtin_types_compatible_p(__typeof__(((struct mlx5dv_qp_ex *)0)->wr_mr_list), \
             void (*)(struct mlx5dv_qp_ex *, struct mlx5dv_mkey *, uint32_t, uint16_t, struct ibv_sge *))",
            1,
        ),
    ]
}

/// A C program that prints one number per line.
fn program(headers: &[&str], rows: &[Row]) -> String {
    let mut text = String::from("#include <stddef.h>\n#include <stdio.h>\n");
    for header in headers {
        let _ = writeln!(text, "#include <{header}>");
    }
    text.push_str("int main(void) {\n");
    for (expression, _) in rows {
        let _ = writeln!(text, "printf(\"%zu\\n\", (size_t)({expression}));");
    }
    text.push_str("return 0; }\n");
    text
}

/// Compares rows with what a compiler says; `directories` are searched first.
fn compare(name: &str, directories: &[PathBuf], headers: &[&str], rows: &[Row]) {
    let place = std::env::temp_dir().join(format!("frwr-abi-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory for the program");
    let (source, binary) = (place.join("layout.c"), place.join("layout"));
    std::fs::write(&source, program(headers, rows)).expect("the program is written");
    let mut compiler = Command::new(COMPILER);
    for directory in directories {
        compiler.arg("-I").arg(directory);
    }
    let built = compiler.arg("-o").arg(&binary).arg(&source).output().expect("the compiler runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(&binary).output().expect("the program runs");
    let _ = std::fs::remove_dir_all(&place);
    let theirs: Vec<usize> =
        String::from_utf8_lossy(&ran.stdout).lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(theirs.len(), rows.len());
    for ((expression, ours), theirs) in rows.iter().zip(theirs) {
        assert_eq!(*ours, theirs, "{name}: {expression}");
    }
}

/// Whether there is a compiler and a header; says what to install where there is not.
fn can_compile(headers: &[&str]) -> bool {
    let missing = headers.iter().find(|header| !Path::new("/usr/include").join(header).exists());
    if let Some(missing) = missing {
        println!("SKIPPED: {missing} is missing; on Debian: apt-get install libibverbs-dev librdmacm-dev");
    } else if Command::new(COMPILER).arg("--version").output().is_err() {
        println!("SKIPPED: there is no {COMPILER}; on Debian: apt-get install gcc");
    } else {
        return true;
    }
    false
}

#[test]
fn layouts_are_those_of_the_installed_headers() {
    const HEADERS: [&str; 2] = ["rdma/rdma_cma.h", "infiniband/verbs.h"];
    if can_compile(&HEADERS) {
        compare("installed", &[], &HEADERS, &rows());
    }
}

const MLX5_HEADER: &str = "infiniband/mlx5dv.h";

#[test]
fn layouts_of_libmlx5_are_those_of_the_installed_header() {
    if can_compile(&[MLX5_HEADER]) {
        compare("mlx5-installed", &[], &[MLX5_HEADER], &mlx5_rows());
    }
}

/// The headers that ibverbs-sys built its binding from lie in its part of the build directory, beside this test.
#[test]
fn layouts_of_libmlx5_are_those_of_the_bundled_header() {
    let test = std::env::current_exe().expect("this test has a path");
    let built = test.ancestors().nth(2).map(|profile| profile.join("build"));
    let found = built.and_then(|built| std::fs::read_dir(built).ok()).into_iter().flatten().flatten();
    let directories = found.map(|entry| entry.path().join("out/build/include"));
    let Some(directory) = directories.into_iter().find(|directory| directory.join(MLX5_HEADER).exists()) else {
        println!("SKIPPED: ibverbs-sys was built without a copy of {MLX5_HEADER}");
        return;
    };
    if can_compile(&[]) {
        compare("mlx5-bundled", &[directory], &[MLX5_HEADER], &mlx5_rows());
    }
}
