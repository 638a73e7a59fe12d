/* Reads the machine from hwloc and keeps what matters to a ring: packages, NUMA nodes, shared
 * caches, cores, NICs and GPUs. A cache above a single core is shown with that core. Equal
 * neighbours become one node with a count. */
#include "tools/ringinfo/ringinfo.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef KO_HAVE_HWLOC
#include <hwloc.h>
#endif

void *info_allocate(size_t n, size_t size)
{
	void *memory = calloc(n, size);

	if (!memory) {
		fprintf(stderr, "ringinfo: out of memory for %zu bytes\n", n * size);
		exit(EXIT_FAILED);
	}
	return memory;
}

static struct node *new_node(const char *what)
{
	struct node *node = info_allocate(1, sizeof(*node));

	node->what = what;
	node->count = 1;
	return node;
}

static void free_nodes(struct node *node)
{
	while (node) {
		struct node *next = node->next;

		free_nodes(node->children);
		free(node);
		node = next;
	}
}

void free_machine(struct machine *m)
{
	free_nodes(m->root);
	while (m->distances) {
		struct matrix *next = m->distances->next;

		free(m->distances->labels);
		free(m->distances->values);
		free(m->distances);
		m->distances = next;
	}
}

/* What is known without hwloc. */
static void look_without_hwloc(struct machine *m, const char *why)
{
	int cores = kolo_cores(NULL, 0);

	m->note = why;
	m->root = new_node("machine");
	gethostname(m->root->name, sizeof(m->root->name) - 1);
	snprintf(m->root->detail, sizeof(m->root->detail), "%d processor%s", cores,
		 cores > 1 ? "s" : "");
}

#ifndef KO_HAVE_HWLOC
void look_at_machine(struct machine *m)
{
	look_without_hwloc(
		m, "hwloc is not in this build: no caches, NUMA nodes, NICs or GPUs are seen");
}
#else

/* ---- Words ----------------------------------------------------------------------------------- */

/* Adds to a list with commas; what is empty or does not fit is left out. */
static void append(char *list, size_t room, const char *text)
{
	size_t at = strlen(list), len = strlen(text) + (at ? 2 : 0);

	if (*text && at + len < room)
		snprintf(list + at, room - at, "%s%s", at ? ", " : "", text);
}

static void append_size(char *list, size_t room, const char *what, uint64_t bytes)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB" };
	double size = (double)bytes / 1024;
	char text[64];
	int unit = 0;

	while (size >= 1024 && unit < 3) {
		size /= 1024;
		unit++;
	}
	snprintf(text, sizeof(text), size < 10 && size != (int)size ? "%s%.1f %s" : "%s%.0f %s",
		 what, size, units[unit]);
	append(list, room, text);
}

/* ---- Equal neighbours ------------------------------------------------------------------------ */

static bool nodes_equal(const struct node *a, const struct node *b)
{
	const struct node *x = a->children, *y = b->children;

	if (strcmp(a->what, b->what) != 0 || strcmp(a->detail, b->detail) != 0)
		return false;
	for (; x && y; x = x->next, y = y->next)
		if (x->count != y->count || !nodes_equal(x, y))
			return false;
	return !x && !y;
}

/* Makes `first` stand for its equal neighbour too, names and processors of all that is below
 * included. */
static void absorb(struct node *first, const struct node *second)
{
	append(first->name, sizeof(first->name), second->name);
	append(first->cpus, sizeof(first->cpus), second->cpus);
	for (struct node *x = first->children, *y = second->children; x && y;
	     x = x->next, y = y->next)
		absorb(x, y);
}

static void collapse(struct node *node)
{
	while (node && node->next) {
		struct node *second = node->next;

		if (!nodes_equal(node, second)) {
			node = second;
			continue;
		}
		absorb(node, second);
		node->count += second->count;
		node->next = second->next;
		second->next = NULL;
		free_nodes(second);
	}
}

/* ---- NICs and GPUs --------------------------------------------------------------------------- */

enum {
	PCI_NETWORK = 0x02,
	PCI_DISPLAY = 0x03,
	PCI_INFINIBAND = 0x0c06,
	PCI_ACCELERATOR = 0x12,
	PCI_VGA = 0x0300
};

/* "NIC", "GPU", or NULL for other devices. A VGA device counts if its maker's devices compute. */
static const char *kind_of_pci(const struct hwloc_pcidev_attr_s *pci)
{
	bool computes = pci->vendor_id == 0x10de || pci->vendor_id == 0x1002; /* NVIDIA, AMD */

	if (pci->class_id >> 8 == PCI_NETWORK || pci->class_id == PCI_INFINIBAND)
		return "NIC";
	if (pci->class_id >> 8 == PCI_ACCELERATOR ||
	    (pci->class_id >> 8 == PCI_DISPLAY && (pci->class_id != PCI_VGA || computes)))
		return "GPU";
	return NULL;
}

static const char *kind_of_os_device(const struct hwloc_osdev_attr_s *device)
{
	switch (device->type) {
	case HWLOC_OBJ_OSDEV_NETWORK:
	case HWLOC_OBJ_OSDEV_OPENFABRICS: return "NIC";
	case HWLOC_OBJ_OSDEV_COPROC: return "GPU";
	default: return NULL;
	}
}

/* The names that the system's drivers gave to a PCI device. */
static void name_device(struct node *node, hwloc_obj_t obj)
{
	for (hwloc_obj_t device = obj->io_first_child; device; device = device->next_sibling)
		if (device->type == HWLOC_OBJ_OS_DEVICE && device->name)
			append(node->name, sizeof(node->name), device->name);
}

static struct node *describe_pci(hwloc_obj_t obj, const char *kind)
{
	const struct hwloc_pcidev_attr_s *pci = &obj->attr->pcidev;
	const char *model = hwloc_obj_get_info_by_name(obj, "PCIDevice");
	struct node *node = new_node(kind);
	char text[64];

	name_device(node, obj);
	if (model)
		snprintf(text, sizeof(text), "%.60s", model);
	else
		snprintf(text, sizeof(text), "PCI %04x:%04x", pci->vendor_id, pci->device_id);
	snprintf(node->detail, sizeof(node->detail), "%s at %04x:%02x:%02x.%x", text, pci->domain,
		 pci->bus, pci->dev, pci->func);
	snprintf(text, sizeof(text), "%.1f GB/s", (double)pci->linkspeed);
	append(node->detail, sizeof(node->detail), pci->linkspeed > 0 ? text : "");
	return node;
}

/* Appends the NICs and GPUs below an object's bridges to the list that ends at *end; returns its
 * new end. */
static struct node **describe_devices(hwloc_obj_t first, struct node **end)
{
	for (hwloc_obj_t obj = first; obj; obj = obj->next_sibling) {
		const char *kind = NULL;

		if (obj->type == HWLOC_OBJ_PCI_DEVICE && (kind = kind_of_pci(&obj->attr->pcidev))) {
			*end = describe_pci(obj, kind);
		} else if (obj->type == HWLOC_OBJ_OS_DEVICE &&
			   (kind = kind_of_os_device(&obj->attr->osdev))) {
			*end = new_node(kind);
			append((*end)->name, sizeof((*end)->name), obj->name ? obj->name : "");
		} else {
			end = describe_devices(obj->io_first_child, end);
		}
		if (kind)
			end = &(*end)->next;
	}
	return end;
}

/* ---- Processors and memory ------------------------------------------------------------------- */

static struct node **describe(hwloc_obj_t obj, const char *caches, struct node **end);

/* Appends what is below an object: memory, then processors and devices. Each returns the list's
 * end. */
static struct node **describe_memory(hwloc_obj_t obj, struct node **end)
{
	for (hwloc_obj_t child = obj->memory_first_child; child; child = child->next_sibling)
		end = describe(child, "", end);
	return end;
}

static struct node **describe_others(hwloc_obj_t obj, const char *caches, struct node **end)
{
	for (hwloc_obj_t child = obj->first_child; child; child = child->next_sibling)
		end = describe(child, caches, end);
	return describe_devices(obj->io_first_child, end);
}

/* What is drawn of an object; NULL for what only groups others. */
static const char *word_for(hwloc_obj_t obj)
{
	switch (obj->type) {
	case HWLOC_OBJ_MACHINE: return "machine";
	case HWLOC_OBJ_PACKAGE: return "package";
	case HWLOC_OBJ_DIE: return "die";
	case HWLOC_OBJ_NUMANODE: return "NUMA node";
	case HWLOC_OBJ_L2CACHE: return "L2";
	case HWLOC_OBJ_L3CACHE: return "L3";
	case HWLOC_OBJ_L4CACHE: return "L4";
	case HWLOC_OBJ_CORE: return "core";
	default: return NULL;
	}
}

static void fill_node(struct node *node, hwloc_obj_t obj, const char *caches)
{
	char text[64];

	if (hwloc_obj_type_is_dcache(obj->type))
		append_size(node->detail, sizeof(node->detail), "", obj->attr->cache.size);
	append(node->detail, sizeof(node->detail), caches);
	if (obj->type == HWLOC_OBJ_MACHINE)
		gethostname(node->name, sizeof(node->name) - 1);
	if (obj->type == HWLOC_OBJ_MACHINE && obj->total_memory)
		append_size(node->detail, sizeof(node->detail), "", obj->total_memory);
	if (obj->type == HWLOC_OBJ_NUMANODE)
		append_size(node->detail, sizeof(node->detail), "",
			    obj->attr->numanode.local_memory);
	if (obj->type == HWLOC_OBJ_CORE && obj->arity > 1) {
		snprintf(text, sizeof(text), "%u threads", obj->arity);
		append(node->detail, sizeof(node->detail), text);
	}
	if (obj->type == HWLOC_OBJ_PACKAGE || obj->type == HWLOC_OBJ_NUMANODE) {
		const char *model = hwloc_obj_get_info_by_name(obj, "CPUModel");

		append(node->detail, sizeof(node->detail), model ? model : "");
		snprintf(node->name, sizeof(node->name), "%u", obj->os_index);
		hwloc_bitmap_list_snprintf(node->cpus, sizeof(node->cpus), obj->cpuset);
	}
}

/* The object itself, or the one NUMA node of what groups cores around it: that stands for the
 * group. */
static hwloc_obj_t drawn_for(hwloc_obj_t obj)
{
	bool around_memory = obj->type == HWLOC_OBJ_GROUP && obj->memory_arity == 1 &&
			     obj->memory_first_child->type == HWLOC_OBJ_NUMANODE;

	return around_memory ? obj->memory_first_child : obj;
}

/* Appends an object to the list that ends at *end, and returns the new end. caches: the names of
 * caches above a single object, which are shown with it. */
static struct node **describe(hwloc_obj_t obj, const char *caches, struct node **end)
{
	bool alone = obj->arity == 1 && !obj->memory_arity && !obj->io_arity &&
		     obj->first_child->type != HWLOC_OBJ_PU;
	hwloc_obj_t drawn = drawn_for(obj);
	const char *word = word_for(drawn);
	char more[128], name[8];
	struct node **inner;

	if (hwloc_obj_type_is_dcache(obj->type) && (alone || !word)) {
		snprintf(more, sizeof(more), "%s", caches);
		snprintf(name, sizeof(name), obj->attr->cache.depth > 1 ? "L%u " : "L%ud ",
			 obj->attr->cache.depth);
		append_size(more, sizeof(more), name, obj->attr->cache.size);
		return describe_others(obj, more, end);
	}
	if (!word)
		return describe_others(obj, caches, describe_memory(obj, end));
	*end = new_node(word);
	fill_node(*end, drawn, caches);
	inner = &(*end)->children;
	describe_others(obj, "", drawn == obj ? describe_memory(obj, inner) : inner);
	collapse(*inner);
	return &(*end)->next;
}

/* ---- Distances ------------------------------------------------------------------------------- */

static struct matrix *copy_matrix(hwloc_topology_t topology, struct hwloc_distances_s *d)
{
	struct matrix *m = info_allocate(1, sizeof(*m));
	const char *name = hwloc_distances_get_name(topology, d);
	size_t n = d->nbobjs;

	snprintf(m->name, sizeof(m->name), "%s", name ? name : "distances");
	m->n = (int)n;
	m->labels = info_allocate(n, sizeof(*m->labels));
	m->values = info_allocate(n * n, sizeof(*m->values));
	for (size_t i = 0; i < n; i++) {
		const char *what = word_for(d->objs[i]);

		if (d->objs[i]->name)
			snprintf(m->labels[i], sizeof(*m->labels), "%.31s", d->objs[i]->name);
		else
			snprintf(m->labels[i], sizeof(*m->labels), "%s %u",
				 what ? what : hwloc_obj_type_string(d->objs[i]->type),
				 d->objs[i]->os_index);
		for (size_t k = 0; k < n; k++)
			m->values[i * n + k] = d->values[i * n + k];
	}
	return m;
}

static struct matrix *copy_distances(hwloc_topology_t topology)
{
	struct hwloc_distances_s *all[16];
	struct matrix *first = NULL, **end = &first;
	unsigned n = sizeof(all) / sizeof(all[0]), found = n;

	if (hwloc_distances_get(topology, &found, all, 0, 0) < 0)
		return NULL;
	for (unsigned i = 0; i < found && i < n; i++) {
		if (all[i]->nbobjs > 1) {
			*end = copy_matrix(topology, all[i]);
			end = &(*end)->next;
		}
		hwloc_distances_release(topology, all[i]);
	}
	return first;
}

void look_at_machine(struct machine *m)
{
	hwloc_topology_t topology = NULL;

	if (hwloc_topology_init(&topology) == 0 &&
	    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
	    hwloc_topology_load(topology) == 0) {
		describe(hwloc_get_root_obj(topology), "", &m->root);
		m->distances = copy_distances(topology);
	} else {
		look_without_hwloc(m, "hwloc could not load the machine's topology");
	}
	if (topology)
		hwloc_topology_destroy(topology);
}
#endif
