#include "tensors.hpp"

namespace kolo
{

namespace
{

bool isBool(at::ScalarType type)
{
	return type == at::ScalarType::Bool;
}

// Ops of torch by number, for types whose elements are numbers.
kolo_op opOf(c10d::ReduceOp::RedOpType op)
{
	switch (op) {
	case c10d::ReduceOp::SUM: return KOLO_SUM;
	case c10d::ReduceOp::AVG: return KOLO_AVG;
	case c10d::ReduceOp::PRODUCT: return KOLO_PROD;
	case c10d::ReduceOp::MIN: return KOLO_MIN;
	case c10d::ReduceOp::MAX: return KOLO_MAX;
	case c10d::ReduceOp::BAND: return KOLO_BAND;
	case c10d::ReduceOp::BOR: return KOLO_BOR;
	case c10d::ReduceOp::BXOR: return KOLO_BXOR;
	default: return KOLO_OP_LAST;
	}
}

// The same for truth values, which stay 0 or 1.
kolo_op opOfBools(c10d::ReduceOp::RedOpType op)
{
	switch (op) {
	case c10d::ReduceOp::SUM:
	case c10d::ReduceOp::MAX:
	case c10d::ReduceOp::BOR: return KOLO_LOR;
	case c10d::ReduceOp::PRODUCT:
	case c10d::ReduceOp::MIN:
	case c10d::ReduceOp::BAND: return KOLO_LAND;
	case c10d::ReduceOp::BXOR: return KOLO_LXOR;
	default: return KOLO_OP_LAST;
	}
}

bool isBitOp(kolo_op op)
{
	return op == KOLO_BAND || op == KOLO_BOR || op == KOLO_BXOR;
}

} // namespace

Kind kindOf(at::ScalarType type, const char *op)
{
	switch (type) {
	case at::ScalarType::Byte:
	case at::ScalarType::Bool: return { KOLO_U8, 1 };
	case at::ScalarType::Char: return { KOLO_I8, 1 };
	case at::ScalarType::Short: return { KOLO_I16, 1 };
	case at::ScalarType::UInt16: return { KOLO_U16, 1 };
	case at::ScalarType::Int: return { KOLO_I32, 1 };
	case at::ScalarType::UInt32: return { KOLO_U32, 1 };
	case at::ScalarType::Long: return { KOLO_I64, 1 };
	case at::ScalarType::UInt64: return { KOLO_U64, 1 };
	case at::ScalarType::Half: return { KOLO_F16, 1 };
	case at::ScalarType::BFloat16: return { KOLO_BF16, 1 };
	case at::ScalarType::Float: return { KOLO_F32, 1 };
	case at::ScalarType::Double: return { KOLO_F64, 1 };
	case at::ScalarType::Float8_e4m3fn: return { KOLO_F8E4M3, 1 };
	case at::ScalarType::Float8_e5m2: return { KOLO_F8E5M2, 1 };
	case at::ScalarType::ComplexHalf: return { KOLO_F16, 2 };
	case at::ScalarType::ComplexFloat: return { KOLO_F32, 2 };
	case at::ScalarType::ComplexDouble: return { KOLO_F64, 2 };
	default: break;
	}
	TORCH_CHECK_TYPE(c10::elementSize(type) == 1, "kolo: ", op, ": tensors of type ", type, " are not supported");
	return { KOLO_U8, 1 };
}

Elements elementsOf(const at::Tensor &tensor, const char *op)
{
	TORCH_CHECK_VALUE(tensor.defined(), "kolo: ", op, ": a tensor is undefined");
	TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "kolo: ", op, ": Tensors must be dense; this one is ",
			  tensor.layout());
	TORCH_CHECK_VALUE(tensor.device().is_cpu() || tensor.device().is_cuda(), "kolo: ", op,
			  ": Tensors must be on the CPU or a CUDA device; this one is on ", tensor.device());
	TORCH_CHECK_VALUE(tensor.is_contiguous(tensor.suggest_memory_format()), "kolo: ", op,
			  ": Tensors must be contiguous; use .contiguous()");
	const Kind kind = kindOf(tensor.scalar_type(), op);
	return { tensor.numel() ? tensor.data_ptr() : nullptr, static_cast<size_t>(tensor.numel()) * kind.each,
		 kind.type };
}

at::Device deviceOf(const std::vector<at::Tensor> &tensors, const std::vector<at::Tensor> &others, const char *op)
{
	const auto &first = tensors.empty() ? others : tensors;
	if (first.empty())
		return at::kCPU;
	for (const auto *list : { &tensors, &others })
		for (const auto &tensor : *list)
			TORCH_CHECK_VALUE(tensor.device() == first[0].device(), "kolo: ", op,
					  ": tensors must be on the same device, got ", first[0].device(), " and ",
					  tensor.device());
	return first[0].device();
}

const at::Tensor &single(const std::vector<at::Tensor> &tensors, const char *op)
{
	TORCH_CHECK_VALUE(tensors.size() == 1, "kolo: ", op, ": requires a single-element tensor list, got ",
			  tensors.size());
	return tensors[0];
}

void mustMatch(const at::Tensor &in, const at::Tensor &out, int64_t times, const char *op)
{
	TORCH_CHECK_VALUE(in.scalar_type() == out.scalar_type(), "kolo: ", op,
			  ": tensors must have the same type: input has ", in.scalar_type(), ", and output ",
			  out.scalar_type());
	TORCH_CHECK_VALUE(in.numel() * times == out.numel(), "kolo: ", op, ": output tensor size must be equal to ",
			  times, " times input tensor size, got ", out.numel(), " elements for ", in.numel());
}

Reduction::Reduction(const c10d::ReduceOp &op, at::ScalarType type, const char *name) : type_(kindOf(type, name).type)
{
	const bool floating = c10::isFloatingType(type) || c10::isComplexType(type);
	if (op == c10d::ReduceOp::PREMUL_SUM) {
		TORCH_CHECK_VALUE(c10::isFloatingType(type), "kolo: ", name,
				  ": PREMUL_SUM is for floating types, not for ", type);
		auto *scale = static_cast<c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
		TORCH_CHECK_VALUE(scale, "kolo: ", name, ": PREMUL_SUM without a factor");
		factor_ = scale->tensor_factor.defined()
				  ? scale->tensor_factor.to(at::kCPU, type).contiguous()
				  : at::full({ 1 }, scale->double_factor, at::TensorOptions().dtype(at::kDouble))
					    .to(type);
		return;
	}
	op_ = isBool(type) ? opOfBools(op) : opOf(op);
	TORCH_CHECK_VALUE(op_ != KOLO_OP_LAST, "kolo: ", name, ": Cannot use this ReduceOp with tensors of type ",
			  type);
	TORCH_CHECK_VALUE(op_ != KOLO_AVG || floating, "kolo: ", name,
			  ": Cannot use ReduceOp.AVG with integral tensors; use SUM");
	TORCH_CHECK_VALUE(!isBitOp(op_) || !floating, "kolo: ", name, ": Cannot use ReduceOp.", kolo_op_name(op_),
			  " with non-integral tensors of type ", type);
	TORCH_CHECK_VALUE(!c10::isComplexType(type) || op_ == KOLO_SUM || op_ == KOLO_AVG, "kolo: ", name,
			  ": complex tensors have ReduceOp.SUM and AVG, not ", kolo_op_name(op_));
	TORCH_CHECK_VALUE(type != at::ScalarType::Float8_e4m3fnuz && type != at::ScalarType::Float8_e5m2fnuz,
			  "kolo: ", name, ": tensors of type ", type, " are not reduced");
}

int Reduction::make(kolo_comm *comm, kolo_op *out) const
{
	*out = op_;
	return factor_.defined() ? kolo_op_create_premul_sum(comm, factor_.data_ptr(), type_, out) : 0;
}

void Reduction::drop(kolo_comm *comm, kolo_op op) const
{
	if (factor_.defined())
		kolo_op_destroy(comm, op);
}

} // namespace kolo
