#include "api/served_services.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <vector>

#include "api/runtime_impl.h"
#include "base/assert.h"
#include "base/exiting.h"
#include "base/fork.h"

namespace weft {
namespace api {
namespace {

struct Entry {
    const Service* service;
    const RuntimeImpl* impl;
    std::weak_ptr<RuntimeImpl> owner;
};

// A forked child has a table of its own, which is empty: it may destroy its copies in any order.
struct Table {
    std::mutex mutex;
    std::vector<Entry> entries;  // One for each service in use: a few.
};

}  // namespace

void register_served(const Service& service, const std::weak_ptr<RuntimeImpl>& impl) {
    const std::shared_ptr<RuntimeImpl> served = impl.lock();
    if (served) served->mark_exit();
    auto& table = base::per_process<Table>();
    const std::lock_guard lock(table.mutex);
    table.entries.push_back({&service, served.get(), impl});
}

void unregister_served(const RuntimeImpl& impl) {
    auto& table = base::per_process<Table>();
    const std::lock_guard lock(table.mutex);
    std::erase_if(table.entries, [&](const Entry& entry) { return entry.impl == &impl; });
}

// Takes the runtimes that serve it out of the table.
static std::vector<std::weak_ptr<RuntimeImpl>> take_servers(const Service& service) {
    auto& table = base::per_process<Table>();
    const std::lock_guard lock(table.mutex);
    std::vector<std::weak_ptr<RuntimeImpl>> servers;
    for (const Entry& entry : table.entries) {
        if (entry.service == &service) servers.push_back(entry.owner);
    }
    std::erase_if(table.entries, [&](const Entry& entry) { return entry.service == &service; });
    return servers;
}

}  // namespace api

Service::~Service() {
    for (const std::weak_ptr<api::RuntimeImpl>& server : api::take_servers(*this)) {
        const std::shared_ptr<api::RuntimeImpl> impl = server.lock();
        // An exception leaves the program of a simulated host, which takes no turn any more.
        if (impl && impl->commons.parts.advance_time && std::uncaught_exceptions() > 0) continue;
        if (!base::is_exiting()) {
            base::abort_misused("a weft::Service was destroyed before a Runtime that serves it",
                                "its handlers would run in freed memory: declare the service "
                                "before the runtime, or destroy the runtime first");
        }
        if (impl) {
            impl->keep_until_exit(
                "weft: exit() destroys a weft::Service before the Runtime that serves it; its "
                "calls end without a word: call Runtime::stop() there and let main() return, or "
                "declare the service before a runtime that is static, too\n");
        }
    }
}

}  // namespace weft
