/* Peer of row A17: RDMA WRITEs to the other end of a loopback connection, by bare libibverbs: posts one, polls until it is done.
 * Prints the median of that time. */
#include "loopback.h"

int main(int count, char **arguments)
{
	if (count != 4) {
		fprintf(stderr, "usage: verbs_write DEVICE BYTES ITERATIONS\n");
		return 2;
	}
	size_t bytes = strtoul(arguments[2], NULL, 10), rounds = strtoul(arguments[3], NULL, 10);
	struct end ours, peers;
	char *from = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), *to = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	double *times = calloc(rounds, sizeof *times);

	open_loopback(arguments[1], &ours, &peers);
	memset(from, 1, bytes);
	memset(to, 0, bytes);
	struct ibv_mr *source = ibv_reg_mr(domain, from, bytes, 0);
	struct ibv_mr *sink = ibv_reg_mr(domain, to, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	need(source && sink && times, "ibv_reg_mr");
	struct ibv_sge piece = { (uintptr_t)from, bytes, source->lkey };
	struct ibv_send_wr wish = { .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED | inline_flag(bytes), .wr.rdma = { (uintptr_t)to, sink->rkey } }, *bad;
	/* The first tenth warms up. */
	size_t warm = rounds / 10;
	for (size_t i = 0; i < rounds; i++) {
		double before = now_us();
		need(!ibv_post_send(ours.qp, &wish, &bad), "ibv_post_send");
		wait_for(ours.sent, 1);
		times[i] = now_us() - before;
	}
	printf("%zu iterations of 1 WRITE of %zu bytes\n", rounds, bytes);
	printf("us %.3f\n", median(times + warm, rounds - warm));
	return 0;
}
