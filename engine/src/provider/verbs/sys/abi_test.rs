//! What this module declares by hand, against the headers that are installed: a C program prints sizes, offsets and values.

use super::{
    cm_abi::{
        ConnectionParameters, DatagramParameters, Event, EventChannel, EventParameters, Identifier, RDMA_PS_TCP, event,
    },
    verbs_abi::ContextHead,
};
use core::mem::offset_of;
use ibverbs_sys::ibv_context;
use std::{fmt::Write as _, path::Path, process::Command};

/// The C compiler of every Debian and of the linker that Rust needs.
const COMPILER: &str = "cc";
const HEADERS: [&str; 2] = ["/usr/include/rdma/rdma_cma.h", "/usr/include/infiniband/verbs.h"];

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
        offset!("rdma_cm_id", "route.addr.dst_addr", Identifier, destination),
        ("sizeof(((struct rdma_cm_id *)0)->route.addr.dst_addr)", size_of::<libc::sockaddr_storage>()),
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
        ("sizeof(struct ibv_context)", size_of::<ibv_context>()),
        // It is the last member.
        ("sizeof(struct verbs_context) - offsetof(struct verbs_context, context)", size_of::<ibv_context>()),
    ]
}

/// A C program that prints one number per line.
fn program(rows: &[Row]) -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/rdma_cma.h>\n#include <infiniband/verbs.h>\nint main(void) {\n",
    );
    for (expression, _) in rows {
        let _ = writeln!(text, "printf(\"%zu\\n\", (size_t)({expression}));");
    }
    text.push_str("return 0; }\n");
    text
}

#[test]
fn layouts_are_those_of_the_installed_headers() {
    if let Some(missing) = HEADERS.iter().find(|header| !Path::new(header).exists()) {
        println!("SKIPPED: {missing} is missing; on Debian: apt-get install libibverbs-dev librdmacm-dev");
        return;
    }
    if Command::new(COMPILER).arg("--version").output().is_err() {
        println!("SKIPPED: there is no {COMPILER}; on Debian: apt-get install gcc");
        return;
    }
    let rows = rows();
    let place = std::env::temp_dir().join(format!("frwr-abi-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory for the program");
    let (source, binary) = (place.join("layout.c"), place.join("layout"));
    std::fs::write(&source, program(&rows)).expect("the program is written");
    let built = Command::new(COMPILER).arg("-o").arg(&binary).arg(&source).output().expect("the compiler runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(&binary).output().expect("the program runs");
    let _ = std::fs::remove_dir_all(&place);
    let theirs: Vec<usize> =
        String::from_utf8_lossy(&ran.stdout).lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(theirs.len(), rows.len());
    for ((expression, ours), theirs) in rows.iter().zip(theirs) {
        assert_eq!(*ours, theirs, "{expression}");
    }
}
