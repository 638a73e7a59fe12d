/* The names of the kinds of operations (ko_coll_name). */
#include "comm/plan/coll.h"

const char *ko_coll_name(int coll)
{
	static const char *const names[KO_GROUP + 1] = {
		[KO_BARRIER] = "barrier",
		[KO_BROADCAST] = "broadcast",
		[KO_REDUCE] = "reduce",
		[KO_ALL_REDUCE] = "all_reduce",
		[KO_REDUCE_SCATTER] = "reduce_scatter",
		[KO_ALL_GATHER] = "all_gather",
		[KO_ALLOC] = "kolo_alloc",
		[KO_FREE] = "kolo_free",
		[KO_REGISTER] = "kolo_cuda_register",
		[KO_DEREGISTER] = "kolo_cuda_deregister",
		[KO_ALL_TO_ALL] = "all_to_all",
		[KO_GATHER] = "gather",
		[KO_SCATTER] = "scatter",
		[KO_SEND_TO] = "send",
		[KO_RECV_FROM] = "recv",
		[KO_GROUP] = "group",
	};

	return coll >= 0 && coll <= KO_GROUP ? names[coll] : "unknown";
}
