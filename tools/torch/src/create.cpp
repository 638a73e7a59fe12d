// Makes a backend: ranks meet by the store. Also what Python calls.
#include "backend.hpp"

#include <torch/csrc/utils/pybind.h>

#include <unistd.h>

namespace kolo
{

namespace
{

[[noreturn]] void fail(const Setup &setup, const std::string &why)
{
	C10_THROW_ERROR(DistBackendError, c10::str("kolo: group ", setup.group, ", rank ", setup.rank, " of ",
						   setup.size, ": joining: ", why));
}

// Rank 0's id, of the time that this rank joins with this store. Every rank counts for itself.
std::string keyOf(const Setup &setup)
{
	return "kolo/id/" + std::to_string(setup.store->add("kolo/joined/" + std::to_string(setup.rank), 1));
}

kolo_id shareId(const Setup &setup, const std::string &key)
{
	kolo_id id;
	if (setup.rank == 0) {
		if (kolo_id_create(&id) < 0)
			fail(setup, kolo_last_error());
		setup.store->set(key, std::vector<uint8_t>(id.bytes, id.bytes + sizeof(id.bytes)));
		return id;
	}
	try {
		setup.store->wait({ key }, setup.timeout);
	} catch (const std::exception &e) {
		fail(setup, c10::str("rank 0 has not come: no ", key, " in the store within ", setup.timeout.count(),
				     " ms (", e.what(), ")"));
	}
	const auto bytes = setup.store->get(key);
	if (bytes.size() != sizeof(id.bytes))
		fail(setup, c10::str(key, " in the store has ", bytes.size(), " bytes, which are no id"));
	std::copy(bytes.begin(), bytes.end(), id.bytes);
	return id;
}

Ends meet(const Setup &setup)
{
	const std::string key = keyOf(setup);
	const kolo_id id = shareId(setup, key);
	kolo_comm_attr attr = {};
	Ends ends;
	attr.id = &id;
	attr.rank = setup.rank;
	attr.nranks = setup.size;
	attr.timeout_s = secondsOf(setup.timeout);
	int rc = kolo_comm_create(&attr, &ends.comm);
	if (rc == 0)
		rc = kolo_mailbox_create(ends.comm, &ends.mailbox);
	const std::string why = rc < 0 ? kolo_last_error() : "";
	if (setup.rank == 0) {
		try {
			setup.store->deleteKey(key);
		} catch (const std::exception &) { // a store that can't: the number keeps it apart
		}
	}
	if (rc < 0) {
		kolo_comm_destroy(ends.comm);
		fail(setup, why);
	}
	return ends;
}

} // namespace

Backend::Backend(const Setup &setup)
    : c10d::Backend(setup.rank, setup.size), name_(setup.backend), group_(setup.group), pid_(getpid()),
      timeout_(setup.timeout), ends_(meet(setup))
{
	host_ = std::make_unique<HostPlace>(ends_.comm);
	init();
	enlist();
#ifdef KOLO_TORCH_OPTIONS
	options_ = c10::make_intrusive<GroupOptions>(name_, setup.timeout);
#endif
}

#ifdef KOLO_TORCH_OPTIONS
// The members meet by the store, which is theirs: torch may call it for ranks that take no part more often than for
// members.
c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store> &store,
						 const std::vector<int> &ranks,
						 const c10::intrusive_ptr<c10d::Backend::Options> &opts)
{
	const auto own = std::find(ranks.begin(), ranks.end(), rank_);
	if (own == ranks.end())
		return nullptr;
	return c10::make_intrusive<Backend>(
		Setup{ store, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
		       opts ? opts->timeout : timeout_.load(), opts ? opts->group_name : group_, name_ });
}
#endif

} // namespace kolo

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
	m.attr("TORCH") = c10::str(TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR);
	m.def("rest", &kolo::Backend::restAll, pybind11::call_guard<pybind11::gil_scoped_release>());
#ifdef KOLO_TORCH_OPTIONS
	// Before torch 2.15 split_group copies the options of the group that it splits.
	pybind11::class_<kolo::GroupOptions, c10::intrusive_ptr<kolo::GroupOptions>, c10d::Backend::Options>(m,
													     "Options")
		.def("__deepcopy__", [](const kolo::GroupOptions &options, const pybind11::dict &) {
			return c10::make_intrusive<kolo::GroupOptions>(options.backend, options.timeout);
		});
#endif
	// Torch calls perform_nocolor_split for ranks that take no part in a new group, since others' groups are made
	// by splitting. Ours meet by the store.
	pybind11::class_<kolo::Backend, c10::intrusive_ptr<kolo::Backend>, c10d::Backend>(m, "ProcessGroupKolo")
#ifdef KOLO_TORCH_OPTIONS
		.def_property_readonly("options", &kolo::Backend::options)
#endif
		.def("perform_nocolor_split", [](const kolo::Backend &, const pybind11::object &) {});
	m.def(
		"create",
		[](const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, double timeout,
		   const std::string &group, const std::string &backend) {
			const kolo::Milliseconds ms(static_cast<int64_t>(timeout * 1000));
			return c10::make_intrusive<kolo::Backend>(kolo::Setup{ store, rank, size, ms, group, backend });
		},
		pybind11::call_guard<pybind11::gil_scoped_release>());
}
