// The collectives of torch, as calls of kolo.h.
#include "backend.hpp"

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <algorithm>

namespace kolo
{

namespace
{

using c10d::OpType;

// Calls call(op) with the op of a reduction.
template <class Call> int reduced(const Place &place, const Reduction &reduction, Call call)
{
	kolo_op op;
	const int rc = reduction.make(place.comm, &op);
	if (rc < 0)
		return rc;
	const int done = call(op);
	reduction.drop(place.comm, op);
	return done;
}

// Does each of a list, until one fails.
template <class One, class Call> int each(const std::vector<One> &all, Call call)
{
	int rc = 0;
	for (size_t k = 0; k < all.size() && rc == 0; k++)
		rc = call(all[k]);
	return rc;
}

// Do the two overlap in memory?
bool overlap(const Elements &a, const Elements &b)
{
	const char *p = static_cast<char *>(a.data), *q = static_cast<char *>(b.data);
	return p < q + b.bytes() && q < p + a.bytes();
}

// The parts of an operation: each rank's tensor, in order; in one piece if they lie one after the other.
class Parts
{
      public:
	Parts(const Tensors &tensors, int size, const char *op)
	{
		TORCH_CHECK_VALUE(static_cast<int>(tensors.size()) == size, "kolo: ", op, ": number of tensors ",
				  tensors.size(), " does not match the group's size ", size);
		for (const auto &tensor : tensors) {
			TORCH_CHECK_VALUE(tensor.scalar_type() == tensors[0].scalar_type(), "kolo: ", op,
					  ": tensors must have the same type, got ", tensors[0].scalar_type(), " and ",
					  tensor.scalar_type());
			parts_.push_back(elementsOf(tensor, op));
			counts_.push_back(parts_.back().n);
			total_ += parts_.back().bytes();
		}
	}
	kolo_type type() const { return parts_[0].type; }
	size_t size() const { return parts_.size(); }
	const Elements &operator[](int rank) const { return parts_[static_cast<size_t>(rank)]; }
	// Is copying them to one place dearer than an operation for each? Yes if they are large and in pieces on some
	// rank: all ranks must find the same, so they ask each other. A GPU copies faster than it hears of others.
	int askApart(Place &place, bool &apart) const
	{
		constexpr size_t LARGE = 1 << 20;
		const bool large = !place.queue && total_ >= LARGE;
		uint8_t pieces = large && !inPlace();
		const int rc = large ? kolo_all_reduce(place.comm, &pieces, &pieces, 1, KOLO_U8, KOLO_MAX, nullptr) : 0;
		apart = pieces;
		return rc;
	}
	// Does `e` lie where another rank's part is, so that one may be written before the other is read? Not if all
	// parts are copied.
	bool spoils(const Elements &e, int own, bool apart) const
	{
		bool shared = false;
		for (size_t r = 0; r < parts_.size(); r++)
			shared = shared ||
				 (overlap(parts_[r], e) && (static_cast<int>(r) != own || parts_[r].data != e.data));
		return shared && (apart || inPlace());
	}
	const size_t *counts() const { return counts_.data(); }
	bool equal() const
	{
		return std::all_of(counts_.begin(), counts_.end(), [this](size_t n) { return n == counts_[0]; });
	}
	// Where all of them are, one after the other: in place, or in `room`.
	void *whole(Place &place) const { return inPlace() ? first() : place.room(total_); }
	// Copies all of them there, or from there.
	void load(Place &place, void *whole) const
	{
		copy(whole, [&place](void *there, void *part, size_t bytes) { place.copy(there, part, bytes); });
	}
	void store(Place &place, void *whole) const
	{
		copy(whole, [&place](void *there, void *part, size_t bytes) { place.copy(part, there, bytes); });
	}

      private:
	template <class Copy> void copy(void *whole, Copy copy) const
	{
		char *at = static_cast<char *>(whole);
		for (const Elements &part : parts_) {
			if (part.n && part.data != at)
				copy(at, part.data, part.bytes());
			at += part.bytes();
		}
	}
	void *first() const
	{
		for (const Elements &part : parts_)
			if (part.n)
				return part.data;
		return nullptr;
	}
	bool inPlace() const
	{
		const char *at = static_cast<char *>(first());
		for (const Elements &part : parts_) {
			if (part.n && part.data != at)
				return false;
			at += part.bytes();
		}
		return true;
	}

	std::vector<Elements> parts_;
	std::vector<size_t> counts_;
	size_t total_ = 0;
};

int rootOf(int64_t root, int size, const char *op)
{
	TORCH_CHECK_VALUE(root >= 0 && root < size, "kolo: ", op, ": invalid root rank: ", root, ", want 0 to ",
			  size - 1);
	return static_cast<int>(root);
}

void sameLength(size_t ins, size_t outs, const char *op)
{
	TORCH_CHECK_VALUE(ins == outs, "kolo: ", op, ": ", ins, " input tensors and ", outs, " output tensors");
}

// One tensor of each rank, and where all of them are, or go to.
struct Pair {
	Elements in, out;
};

void *copyOf(Place &place, const Elements &e)
{
	void *room = place.room(e.bytes());
	place.copy(room, e.data, e.bytes());
	return room;
}

int allGather(Place &place, const Pair &pair)
{
	const Elements &in = pair.in, &out = pair.out;
	const void *own = static_cast<char *>(out.data) + static_cast<size_t>(kolo_comm_rank(place.comm)) * in.bytes();
	const bool apart = in.data == own || !overlap(in, out);
	const void *src = apart ? in.data : copyOf(place, in);
	return kolo_all_gather(place.comm, src, out.data, in.n, in.type, place.queue);
}

int reduceScatter(Place &place, const Pair &pair, const Reduction &reduction)
{
	const Elements &in = pair.in, &out = pair.out;
	const void *own = static_cast<char *>(in.data) + static_cast<size_t>(kolo_comm_rank(place.comm)) * out.bytes();
	void *dst = out.data;
	if (dst != own && overlap(in, out))
		dst = place.room(out.bytes());
	const int rc = reduced(place, reduction, [&](kolo_op op) {
		return kolo_reduce_scatter(place.comm, in.data, dst, out.n, in.type, op, place.queue);
	});
	if (rc == 0 && dst != out.data)
		place.copy(out.data, dst, out.bytes());
	return rc;
}

// The elements of each rank's part of a tensor, of which `splits` counts rows; empty: equal parts.
std::vector<size_t> countsOf(const at::Tensor &tensor, const std::vector<int64_t> &splits, int size)
{
	const size_t each = kindOf(tensor.scalar_type(), "all_to_all").each;
	c10d::checkSplitSizes(splits, tensor, size);
	if (splits.empty())
		return std::vector<size_t>(static_cast<size_t>(size),
					   static_cast<size_t>(tensor.numel() / size) * each);
	const int64_t row = tensor.size(0) ? tensor.numel() / tensor.size(0) : 0;
	std::vector<size_t> counts;
	for (const int64_t rows : splits)
		counts.push_back(static_cast<size_t>(rows * row) * each);
	return counts;
}

} // namespace

// ---- In place -----------------------------------------------------------------------------------------------------

Done Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
	const Elements e = elementsOf(single(tensors, "broadcast"), "broadcast");
	const int root = rootOf(opts.rootRank, size_, "broadcast");
	return run(OpType::BROADCAST, "broadcast", tensors, tensors, opts, [e, root](Place &place) {
		return kolo_broadcast(place.comm, e.data, e.data, e.n, e.type, root, place.queue);
	});
}

template <class O> Done Backend::reduceAll(OpType type, const Tensors &tensors, const O &opts)
{
	std::vector<std::pair<Elements, Reduction>> all;
	for (const auto &tensor : tensors)
		all.emplace_back(elementsOf(tensor, "all_reduce"),
				 Reduction(opts.reduceOp, tensor.scalar_type(), "all_reduce"));
	return run(type, "all_reduce", tensors, tensors, opts, [all](Place &place) {
		return each(all, [&place](const std::pair<Elements, Reduction> &one) {
			const Elements &e = one.first;
			return reduced(place, one.second, [&](kolo_op op) {
				return kolo_all_reduce(place.comm, e.data, e.data, e.n, e.type, op, place.queue);
			});
		});
	});
}

Done Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
	if (single(tensors, "all_reduce").is_sparse())
		return allreduce_sparse(tensors, opts);
	return reduceAll(OpType::ALLREDUCE, tensors, opts);
}

Done Backend::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts)
{
	return reduceAll(OpType::ALLREDUCE_COALESCED, tensors, opts);
}

// Gathers the indices and values of all ranks, and adds those of equal indices.
Done Backend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
	const at::Tensor tensor = single(tensors, "all_reduce");
	TORCH_CHECK_VALUE(tensor.is_sparse() && tensor.device().is_cpu(),
			  "kolo: all_reduce: want a sparse COO tensor on the CPU");
	TORCH_CHECK_VALUE(opts.reduceOp == c10d::ReduceOp::SUM,
			  "kolo: all_reduce: sparse tensors have ReduceOp.SUM alone");
	const auto size = static_cast<size_t>(size_);
	return run(OpType::_ALLREDUCE_SPARSE, "all_reduce", tensors, tensors, opts, [tensor, size](Place &place) {
		at::NoGradGuard guard;
		const auto own = tensor.detach().coalesce();
		const auto indices = own._indices().t().contiguous(), values = own._values().contiguous();
		const Kind kind = kindOf(values.scalar_type(), "all_reduce");
		const int64_t count = own._nnz();
		std::vector<int64_t> counts(size), shape = values.sizes().vec();
		std::vector<size_t> of_indices, of_values;
		size_t row = kind.each;
		int rc = kolo_all_gather(place.comm, &count, counts.data(), 1, KOLO_I64, nullptr);
		for (size_t k = 1; k < shape.size(); k++)
			row *= static_cast<size_t>(shape[k]);
		shape[0] = 0;
		for (int64_t n : counts) {
			of_indices.push_back(static_cast<size_t>(n * own.sparse_dim()));
			of_values.push_back(static_cast<size_t>(n) * row);
			shape[0] += n;
		}
		if (rc < 0)
			return rc;
		auto all_indices = at::empty({ shape[0], own.sparse_dim() }, indices.options()),
		     all_values = at::empty(shape, values.options());
		rc = kolo_all_gather_v(place.comm, indices.data_ptr(), all_indices.data_ptr(), of_indices.data(),
				       KOLO_I64, nullptr);
		if (rc == 0)
			rc = kolo_all_gather_v(place.comm, values.data_ptr(), all_values.data_ptr(), of_values.data(),
					       kind.type, nullptr);
		if (rc < 0)
			return rc;
		at::_validate_sparse_coo_tensor_args(all_indices.t(), all_values, tensor.sizes());
		tensor.copy_(at::sparse_coo_tensor(all_indices.t(), all_values, tensor.sizes()).coalesce());
		return rc;
	});
}

Done Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
	const auto &tensor = single(tensors, "reduce");
	const Elements e = elementsOf(tensor, "reduce");
	const Reduction reduction(opts.reduceOp, tensor.scalar_type(), "reduce");
	const int root = rootOf(opts.rootRank, size_, "reduce");
	return run(OpType::REDUCE, "reduce", tensors, tensors, opts, [e, reduction, root](Place &place) {
		return reduced(place, reduction, [&](kolo_op op) {
			return kolo_reduce(place.comm, e.data, e.data, e.n, e.type, op, root, place.queue);
		});
	});
}

// ---- Gathering ----------------------------------------------------------------------------------------------------

namespace
{

// Without a copy. On one host all ranks pass their parts at once; between hosts a part goes to each host once.
int gatherEach(Place &place, const Elements &in, const void *src, const Parts &out)
{
	const int rank = kolo_comm_rank(place.comm), n = kolo_comm_nranks(place.comm);
	int rc = 0;
	if (kolo_comm_local_ranks(place.comm) == n)
		return grouped(2 * out.size(), [&](size_t k) {
			const int r = (rank + static_cast<int>(k / 2)) % n;
			return k % 2 ? kolo_recv(place.comm, out[r].data, out[r].n, in.type, r, place.queue)
				     : kolo_send(place.comm, src, in.n, in.type, r, place.queue);
		});
	for (int r = 0; r < n && rc == 0; r++)
		rc = kolo_broadcast(place.comm, src, out[r].data, out[r].n, in.type, r, place.queue);
	return rc;
}

} // namespace

Done Backend::allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
	const Elements in = elementsOf(single(inputs, "all_gather"), "all_gather");
	sameLength(inputs.size(), outputs.size(), "all_gather");
	const Parts out(outputs[0], size_, "all_gather");
	mustMatch(inputs[0], outputs[0][static_cast<size_t>(rank_)], 1, "all_gather");
	return run(OpType::ALLGATHER, "all_gather", inputs, outputs[0], opts, [in, out, this](Place &place) {
		bool apart;
		int rc = out.askApart(place, apart);
		if (rc < 0)
			return rc;
		const void *src = out.spoils(in, rank_, apart) ? copyOf(place, in) : in.data;
		if (apart)
			return gatherEach(place, in, src, out);
		void *whole = out.whole(place);
		rc = out.equal() ? kolo_all_gather(place.comm, src, whole, in.n, in.type, place.queue)
				 : kolo_all_gather_v(place.comm, src, whole, out.counts(), in.type, place.queue);
		if (rc == 0)
			out.store(place, whole);
		return rc;
	});
}

// outputs[r][k] is tensor k of rank r.
Done Backend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
	std::vector<std::pair<Elements, Parts>> all;
	Tensors outs;
	sameLength(static_cast<size_t>(size_), outputs.size(), "all_gather");
	for (size_t k = 0; k < inputs.size(); k++) {
		Tensors of_ranks;
		for (const auto &list : outputs) {
			sameLength(inputs.size(), list.size(), "all_gather");
			mustMatch(inputs[k], list[k], 1, "all_gather");
			of_ranks.push_back(list[k]);
		}
		outs.insert(outs.end(), of_ranks.begin(), of_ranks.end());
		all.emplace_back(elementsOf(inputs[k], "all_gather"), Parts(of_ranks, size_, "all_gather"));
	}
	return run(OpType::ALLGATHER_COALESCED, "all_gather", inputs, outs, opts, [all](Place &place) {
		return each(all, [&place](const std::pair<Elements, Parts> &one) {
			void *whole = one.second.whole(place);
			const int rc = kolo_all_gather(place.comm, one.first.data, whole, one.first.n, one.first.type,
						       place.queue);
			if (rc == 0)
				one.second.store(place, whole);
			return rc;
		});
	});
}

Done Backend::gatherAll(OpType type, const Tensors &outputs, const Tensors &inputs, const c10d::AllgatherOptions &opts)
{
	std::vector<Pair> all;
	sameLength(inputs.size(), outputs.size(), "all_gather");
	for (size_t k = 0; k < inputs.size(); k++) {
		mustMatch(inputs[k], outputs[k], size_, "all_gather");
		all.push_back({ elementsOf(inputs[k], "all_gather"), elementsOf(outputs[k], "all_gather") });
	}
	return run(type, "all_gather", inputs, outputs, opts, [all](Place &place) {
		return each(all, [&place](const Pair &pair) { return allGather(place, pair); });
	});
}

Done Backend::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts)
{
	return gatherAll(OpType::_ALLGATHER_BASE, { output }, { input }, opts);
}

Done Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
	return gatherAll(OpType::COALESCED, outputs, inputs, opts);
}

// The tensors of all ranks on root; elsewhere there are none.
static std::optional<Parts> onRoot(const std::vector<Tensors> &lists, const at::Tensor &own, bool is_root, int size,
				   const char *op, const char *list)
{
	if (!is_root) {
		TORCH_CHECK_VALUE(lists.empty(), "kolo: ", op, ": requires empty ", list, " on non-root");
		return std::nullopt;
	}
	TORCH_CHECK_VALUE(lists.size() == 1, "kolo: ", op, ": requires a single-element ", list,
			  " list containing a list with ", size, " tensors");
	const Parts parts(lists[0], size, op);
	for (const auto &tensor : lists[0])
		mustMatch(tensor, own, 1, op);
	return parts;
}

Done Backend::gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts)
{
	const Elements in = elementsOf(single(inputs, "gather"), "gather");
	const int root = rootOf(opts.rootRank, size_, "gather");
	const auto out = onRoot(outputs, inputs[0], rank_ == root, size_, "gather", "output");
	return run(OpType::GATHER, "gather", inputs, out ? outputs[0] : Tensors(), opts, [in, out, root](Place &place) {
		void *whole = out ? out->whole(place) : nullptr;
		const int rc = kolo_gather(place.comm, in.data, whole, in.n, in.type, root, place.queue);
		if (rc == 0 && out)
			out->store(place, whole);
		return rc;
	});
}

Done Backend::scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &opts)
{
	const Elements out = elementsOf(single(outputs, "scatter"), "scatter");
	const int root = rootOf(opts.rootRank, size_, "scatter");
	const auto in = onRoot(inputs, outputs[0], rank_ == root, size_, "scatter", "input");
	return run(OpType::SCATTER, "scatter", in ? inputs[0] : Tensors(), outputs, opts,
		   [in, out, root](Place &place) {
			   void *whole = in ? in->whole(place) : nullptr;
			   if (in)
				   in->load(place, whole);
			   return kolo_scatter(place.comm, whole, out.data, out.n, out.type, root, place.queue);
		   });
}

// ---- Reducing and scattering --------------------------------------------------------------------------------------

namespace
{

int reduceScatter(Place &place, const Parts &in, const Elements &out, kolo_op op)
{
	bool apart;
	int rc = in.askApart(place, apart);
	if (rc < 0)
		return rc;
	void *dst = in.spoils(out, kolo_comm_rank(place.comm), apart) ? place.room(out.bytes()) : out.data;
	for (size_t r = 0; r < in.size() && rc == 0 && apart; r++) {
		const Elements &part = in[static_cast<int>(r)];
		rc = kolo_reduce(place.comm, part.data, dst, part.n, out.type, op, static_cast<int>(r), place.queue);
	}
	if (!apart) {
		void *whole = in.whole(place);
		in.load(place, whole);
		rc = in.equal() ? kolo_reduce_scatter(place.comm, whole, dst, out.n, out.type, op, place.queue)
				: kolo_reduce_scatter_v(place.comm, whole, dst, in.counts(), out.type, op, place.queue);
	}
	if (rc == 0 && dst != out.data)
		place.copy(out.data, dst, out.bytes());
	return rc;
}

} // namespace

Done Backend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ReduceScatterOptions &opts)
{
	const Elements out = elementsOf(single(outputs, "reduce_scatter"), "reduce_scatter");
	sameLength(inputs.size(), outputs.size(), "reduce_scatter");
	const Parts in(inputs[0], size_, "reduce_scatter");
	const Reduction reduction(opts.reduceOp, outputs[0].scalar_type(), "reduce_scatter");
	mustMatch(inputs[0][static_cast<size_t>(rank_)], outputs[0], 1, "reduce_scatter");
	return run(
		OpType::REDUCE_SCATTER, "reduce_scatter", inputs[0], outputs, opts, [in, out, reduction](Place &place) {
			return reduced(place, reduction, [&](kolo_op op) { return reduceScatter(place, in, out, op); });
		});
}

Done Backend::reduceScatterAll(OpType type, const Tensors &outputs, const Tensors &inputs,
			       const c10d::ReduceScatterOptions &opts)
{
	std::vector<std::pair<Pair, Reduction>> all;
	sameLength(inputs.size(), outputs.size(), "reduce_scatter");
	for (size_t k = 0; k < inputs.size(); k++) {
		mustMatch(outputs[k], inputs[k], size_, "reduce_scatter");
		all.emplace_back(
			Pair{ elementsOf(inputs[k], "reduce_scatter"), elementsOf(outputs[k], "reduce_scatter") },
			Reduction(opts.reduceOp, inputs[k].scalar_type(), "reduce_scatter"));
	}
	return run(type, "reduce_scatter", inputs, outputs, opts, [all](Place &place) {
		return each(all, [&place](const std::pair<Pair, Reduction> &one) {
			return reduceScatter(place, one.first, one.second);
		});
	});
}

Done Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &opts)
{
	return reduceScatterAll(OpType::_REDUCE_SCATTER_BASE, { output }, { input }, opts);
}

Done Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &opts)
{
	return reduceScatterAll(OpType::COALESCED, outputs, inputs, opts);
}

// ---- All to all, and the barrier ----------------------------------------------------------------------------------

Done Backend::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &outSplits,
			    std::vector<int64_t> &inSplits, const c10d::AllToAllOptions &opts)
{
	const Elements in = elementsOf(input, "all_to_all"), out = elementsOf(output, "all_to_all");
	TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type(),
			  "kolo: all_to_all: tensors must have the same type, got ", input.scalar_type(), " and ",
			  output.scalar_type());
	const auto sends = countsOf(input, inSplits, size_), recvs = countsOf(output, outSplits, size_);
	return run(OpType::ALLTOALL_BASE, "all_to_all", { input }, { output }, opts,
		   [in, out, sends, recvs](Place &place) {
			   const void *src = overlap(in, out) ? copyOf(place, in) : in.data;
			   return kolo_all_to_all_v(place.comm, src, sends.data(), out.data, recvs.data(), in.type,
						    place.queue);
		   });
}

Done Backend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts)
{
	const Parts in(inputs, size_, "all_to_all"), out(outputs, size_, "all_to_all");
	TORCH_CHECK_VALUE(in.type() == out.type(),
			  "kolo: all_to_all: input and output tensors must have the same type");
	return run(OpType::ALLTOALL, "all_to_all", inputs, outputs, opts, [in, out](Place &place) {
		return grouped(2 * in.size(), [&](size_t k) {
			const auto r = static_cast<int>(k / 2);
			return k % 2 ? kolo_recv(place.comm, out[r].data, out[r].n, in.type(), r, place.queue)
				     : kolo_send(place.comm, in[r].data, in[r].n, in.type(), r, place.queue);
		});
	});
}

// On a GPU it comes when what the caller's stream has is done.
Done Backend::barrier(const c10d::BarrierOptions &opts)
{
	if (hasJoined())
		inTurn("barrier", [this] { streams_->finish(); });
	return run(OpType::BARRIER, "barrier", {}, {}, opts,
		   [](Place &place) { return kolo_barrier(place.comm, nullptr); });
}

} // namespace kolo
