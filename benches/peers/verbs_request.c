/* Peer of rows A14 and A15: DEPTH requests at a time by bare libibverbs, both ends in one thread. A request is a SEND
 * of 64 bytes, the peer's WRITE of BYTES into the requester's memory, and the peer's reply of 16 bytes.
 * static: one key for the whole run. reg_mr: ibv_reg_mr and ibv_dereg_mr for each request. Prints the time per request: the mean,
 * and the median of rounds of DEPTH. */
#include "loopback.h"

#define REQUEST 64
#define REPLY 16

static char messages[DEPTH * REQUEST];
static struct ibv_mr *message_key;

static void receive(struct end *end, int at)
{
	struct ibv_sge piece = { (uintptr_t)&messages[at * REQUEST], REQUEST, message_key->lkey };
	struct ibv_recv_wr wish = { .wr_id = at, .sg_list = &piece, .num_sge = 1 }, *bad;
	need(!ibv_post_recv(end->qp, &wish, &bad), "ibv_post_recv");
}

static void send(struct end *end, int bytes, struct ibv_send_wr *before)
{
	struct ibv_sge piece = { (uintptr_t)messages, bytes, message_key->lkey };
	struct ibv_send_wr wish = { .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | inline_flag(bytes) }, *bad;
	if (before)
		before->next = &wish;
	need(!ibv_post_send(end->qp, before ? before : &wish, &bad), "ibv_post_send");
}

int main(int count, char **arguments)
{
	if (count != 6) {
		fprintf(stderr, "usage: verbs_request DEVICE static|reg_mr BYTES DEPTH ITERATIONS\n");
		return 2;
	}
	int each = !strcmp(arguments[2], "reg_mr"), depth = atoi(arguments[4]);
	size_t bytes = strtoul(arguments[3], NULL, 10), rounds = strtoul(arguments[5], NULL, 10);
	char *memory = aligned_alloc(4096, depth * bytes), *data = aligned_alloc(4096, bytes);
	int open = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_mr *keys[DEPTH];
	double *times = calloc(rounds, sizeof *times);
	struct end owner, peer;

	need(depth > 0 && depth <= DEPTH / 2, "DEPTH: 1 to 64");
	open_loopback(arguments[1], &owner, &peer);
	memset(memory, 0, depth * bytes);
	memset(data, 1, bytes);
	message_key = ibv_reg_mr(domain, messages, sizeof messages, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *whole = ibv_reg_mr(domain, memory, depth * bytes, open), *source = ibv_reg_mr(domain, data, bytes, 0);
	need(message_key && whole && source && times, "ibv_reg_mr");
	for (int at = 0; at < depth; at++) {
		receive(&owner, at);
		receive(&peer, depth + at);
	}
	double before = now_us();
	for (size_t i = 0; i < rounds; i++) {
		double began = now_us();
		for (int at = 0; at < depth; at++) {
			keys[at] = each ? ibv_reg_mr(domain, memory + at * bytes, bytes, open) : whole;
			need(!!keys[at], "ibv_reg_mr");
			send(&owner, REQUEST, NULL);
		}
		for (int at = 0; at < depth; at++) {
			struct ibv_sge piece = { (uintptr_t)data, bytes, source->lkey };
			struct ibv_send_wr write = { .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				.wr.rdma = { (uintptr_t)memory + at * bytes, keys[at]->rkey } };
			wait_for(peer.received, 1);
			receive(&peer, depth + at);
			send(&peer, REPLY, &write);
		}
		for (int at = 0; at < depth; at++) {
			wait_for(owner.received, 1);
			receive(&owner, at);
			if (each)
				need(!ibv_dereg_mr(keys[at]), "ibv_dereg_mr");
		}
		wait_for(owner.sent, depth);
		wait_for(peer.sent, depth);
		times[i] = now_us() - began;
	}
	printf("%zu iterations of %d requests of %zu bytes\n", rounds, depth, bytes);
	printf("us %.3f\nmedian %.3f\n", (now_us() - before) / rounds / depth, median(times, rounds) / depth);
	return 0;
}
