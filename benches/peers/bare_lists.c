// The card's own ceiling for goal B1: keys per second that one queue pair of a ConnectX makes and kills by work requests, with
// nothing of frwr around it. One queue pair, connected to itself; each doorbell carries BATCH registrations of 4 KiB (UMR lists)
// and the LOCAL_INVs of the same keys, one of them signalled. Never run on hardware.
//   cc -O3 -march=native bare_lists.c -o bare_lists -libverbs -lmlx5
//   ./bare_lists mlx5_0 GID_INDEX BATCH DOORBELLS       prints "keys_per_second N"
#include <infiniband/mlx5dv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_BATCH = 64, BYTES = 4096, PORT = 1, POSTED_AT_ONCE = 2, LIST_BYTES = 64 };

static void need(int holds, const char *what) {
    if (!holds) { fprintf(stderr, "bare_lists: %s: %m\n", what); exit(1); }
}

static struct ibv_context *open_device(const char *name) {
    struct ibv_device **all = ibv_get_device_list(NULL);
    for (int i = 0; all && all[i]; i++)
        if (!strcmp(ibv_get_device_name(all[i]), name) && mlx5dv_is_supported(all[i])) return ibv_open_device(all[i]);
    return NULL;
}

static void connect_to_itself(struct ibv_qp *qp, struct ibv_context *context, int gid_index) {
    struct ibv_port_attr port;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = IBV_ACCESS_REMOTE_READ};
    need(!ibv_query_port(context, PORT, &port), "port");
    need(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = qp->qp_num,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
        .ah_attr = {.dlid = port.lid, .port_num = PORT, .is_global = gid_index >= 0, .grh = {.hop_limit = 1}}};
    if (gid_index >= 0) {
        attr.ah_attr.grh.sgid_index = gid_index;
        need(!ibv_query_gid(context, PORT, gid_index, &attr.ah_attr.grh.dgid), "GID");
    }
    need(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 6, .rnr_retry = 6, .max_rd_atomic = 1};
    need(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
        IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

int main(int argc, char **argv) {
    need(argc == 5, "DEVICE GID_INDEX BATCH DOORBELLS");
    long batch = atol(argv[3]), doorbells = atol(argv[4]), completed = 0;
    need(batch > 0 && batch <= MAX_BATCH && doorbells > 0, "BATCH is 1 to 64, DOORBELLS 1 or more");
    struct ibv_context *context = open_device(argv[1]);
    need(context != NULL, "no such mlx5 device");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 2 * POSTED_AT_ONCE, NULL, NULL, 0);
    char *memory = aligned_alloc(BYTES, (size_t)batch * BYTES);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, (size_t)batch * BYTES, IBV_ACCESS_LOCAL_WRITE);
    need(pd && cq && memory && mr, "objects");
    struct ibv_qp_init_attr_ex ex = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
        .cap = {.max_send_wr = 2 * MAX_BATCH * POSTED_AT_ONCE, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
            .max_inline_data = LIST_BYTES},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_LOCAL_INV};
    struct mlx5dv_qp_init_attr dv = {.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
        .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
        .send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST};
    struct ibv_qp *qp = mlx5dv_create_qp(context, &ex, &dv);
    need(qp != NULL, "queue pair");
    connect_to_itself(qp, context, atoi(argv[2]));
    struct ibv_qp_ex *post = ibv_qp_to_qp_ex(qp);
    struct mlx5dv_qp_ex *lists = mlx5dv_qp_ex_from_ibv_qp_ex(post);
    struct mlx5dv_mkey *keys[MAX_BATCH];
    for (int i = 0; i < batch; i++) {
        struct mlx5dv_mkey_init_attr wanted = {.pd = pd, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = 4};
        need((keys[i] = mlx5dv_create_mkey(&wanted)) != NULL, "mkey");
    }
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long posted = 0; completed < doorbells;) {
        if (posted < doorbells && posted - completed < POSTED_AT_ONCE) {
            ibv_wr_start(post);
            for (int i = 0; i < batch; i++) {
                struct ibv_sge page = {(uintptr_t)memory + (size_t)i * BYTES, BYTES, mr->lkey};
                post->wr_flags = IBV_SEND_INLINE;
                mlx5dv_wr_mr_list(lists, keys[i], IBV_ACCESS_REMOTE_READ, 1, &page);
            }
            for (int i = 0; i < batch; i++) {
                post->wr_flags = i == batch - 1 ? IBV_SEND_SIGNALED : 0;
                ibv_wr_local_inv(post, keys[i]->rkey);
            }
            need(!ibv_wr_complete(post), "post");
            posted++;
        }
        struct ibv_wc done[POSTED_AT_ONCE];
        int found = ibv_poll_cq(cq, POSTED_AT_ONCE, done);
        need(found >= 0, "poll");
        for (int i = 0; i < found; i++) need(done[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(done[i].status));
        completed += found;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double nanoseconds = 1e9 * (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec);
    printf("keys_per_second %.0f\n", 1e9 * (double)doorbells * batch / nanoseconds);
}
