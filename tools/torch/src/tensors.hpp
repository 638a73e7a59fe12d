// What Kolo makes of a tensor: address, type and number of elements; and of an op of torch.
#pragma once

#include <kolo/kolo.h>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace kolo
{

// The elements of a tensor, one after the other.
struct Elements {
	void *data;
	size_t n; // as Kolo counts: a complex number is two
	kolo_type type;
	size_t bytes() const { return n * kolo_type_size(type); }
};

// How many elements of Kolo's an element of this type is, and of which type. Raises TypeError if the type has none.
struct Kind {
	kolo_type type;
	size_t each;
};
Kind kindOf(at::ScalarType type, const char *op);

// Checks that a tensor is dense, contiguous in its memory format, and where Kolo can use it. Raises ValueError.
Elements elementsOf(const at::Tensor &tensor, const char *op);

// Where they all are; on the CPU if there are none. Raises ValueError if they are in several places.
at::Device deviceOf(const std::vector<at::Tensor> &tensors, const std::vector<at::Tensor> &others, const char *op);

// The only tensor of a list. Raises ValueError if there is another number of them.
const at::Tensor &single(const std::vector<at::Tensor> &tensors, const char *op);

// Raises ValueError if the tensors differ in type or device, or `out` has not `times` the elements of `in`.
void mustMatch(const at::Tensor &in, const at::Tensor &out, int64_t times, const char *op);

// An op of torch for a type of elements. A sum of scaled elements has a factor, which `make` makes an op of.
class Reduction
{
      public:
	// Raises ValueError if the type has no such op.
	Reduction(const c10d::ReduceOp &op, at::ScalarType type, const char *name);
	// Makes *out, for the time of one call. The same errors as those of kolo_op_create_premul_sum.
	int make(kolo_comm *comm, kolo_op *out) const;
	void drop(kolo_comm *comm, kolo_op op) const;

      private:
	kolo_op op_ = KOLO_SUM;
	at::Tensor factor_; // one element; undefined: none
	kolo_type type_;
};

} // namespace kolo
