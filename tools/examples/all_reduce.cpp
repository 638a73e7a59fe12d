// Kolo from C++: a communicator as a move-only class, errors as exceptions, vectors of any type that Kolo has.
// Rank ROOT (an argument; 0 without it) hands a weight to all; each contributes weight * (rank + 1).
#include <kolo/kolo.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace kolo
{

// what() is what was tried and the library's text; status one of enum kolo_status.
struct error : std::runtime_error {
	error(const char *what, int status)
		: std::runtime_error(std::string(what) + ": " + kolo_last_error()), status(status)
	{
	}
	int status;
};

inline void check(const char *what, int status)
{
	if (status < 0)
		throw error(what, status);
}

// Which kolo_type an element type is; one line for each that the program uses. Others don't compile.
template <class T> struct type_of;
template <> struct type_of<std::int32_t> { static constexpr kolo_type value = KOLO_I32; };
template <> struct type_of<std::int64_t> { static constexpr kolo_type value = KOLO_I64; };
template <> struct type_of<float> { static constexpr kolo_type value = KOLO_F32; };
template <> struct type_of<double> { static constexpr kolo_type value = KOLO_F64; };

// Joins in the constructor, leaves in the destructor; can be moved, not copied. attr null: rank, size and id come
// from the launcher.
class communicator
{
public:
	explicit communicator(const kolo_comm_attr *attr = nullptr)
	{
		kolo_comm *made = nullptr;

		check("joining", kolo_comm_create(attr, &made));
		comm.reset(made);
	}
	int rank() const { return kolo_comm_rank(comm.get()); }
	int nranks() const { return kolo_comm_nranks(comm.get()); }

	// In place.
	template <class T> void all_reduce(std::vector<T> &x, kolo_op op = KOLO_SUM)
	{
		check("all_reduce", kolo_all_reduce(comm.get(), x.data(), x.data(), x.size(),
						    type_of<T>::value, op, nullptr));
	}
	template <class T> void broadcast(std::vector<T> &x, int root)
	{
		check("broadcast", kolo_broadcast(comm.get(), x.data(), x.data(), x.size(),
						  type_of<T>::value, root, nullptr));
	}

private:
	struct leave {
		void operator()(kolo_comm *c) const { kolo_comm_destroy(c); }
	};
	std::unique_ptr<kolo_comm, leave> comm;
};

} // namespace kolo

// The sum that every rank must find; all types can hold it.
template <class T> static T weighted_sum(kolo::communicator &comm, int root)
{
	std::vector<T> weight(1, static_cast<T>(comm.rank() + 1));

	comm.broadcast(weight, root);
	std::vector<T> x(1000, static_cast<T>(weight[0] * static_cast<T>(comm.rank() + 1)));
	comm.all_reduce(x);
	int n = comm.nranks();
	for (const T &element : x)
		if (element != static_cast<T>((root + 1) * n * (n + 1) / 2))
			throw std::runtime_error("the sum is wrong");
	return x.back();
}

int main(int argc, char **argv)
{
	int root = 0;

	if (argc > 1) {
		std::istringstream text(argv[1]);
		if (!(text >> root) || !text.eof()) {
			std::cerr << std::string("ROOT ") + argv[1] + ": want a number\n";
			return 2;
		}
	}
	try {
		kolo::communicator comm;

		weighted_sum<std::int32_t>(comm, root);
		weighted_sum<std::int64_t>(comm, root);
		weighted_sum<double>(comm, root);
		std::ostringstream line; // one write for each line: ranks print at the same time
		line << "rank " << comm.rank() << " of " << comm.nranks() << ": the sum is "
		     << weighted_sum<float>(comm, root) << "\n";
		std::cout << line.str();
	} catch (const std::exception &e) {
		std::cerr << std::string(e.what()) + "\n";
		return 1;
	}
	return 0;
}
