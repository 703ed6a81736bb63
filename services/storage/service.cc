#include "service.h"

#include <algorithm>

#include <weft/offload.h>

#include "listing.h"
#include "name.h"

namespace storage {

using weft::Call;
using weft::Code;
using weft::Result;
using weft::Status;
using weft::Task;

Result<std::shared_ptr<SharedStore>> SharedStore::open(const std::string& path,
                                                       const std::string& journal_path) {
    Result<Root> root = Root::open(path);
    if (!root) return std::move(root).status();
    Result<Journal> journal = journal_path.empty() ? Journal() : Journal::open(journal_path);
    if (!journal) return std::move(journal).status();
    return std::make_shared<SharedStore>(*std::move(root), *std::move(journal));
}

// Each context has a part of the buffers, and two at least: one client may hold half of them.
static std::size_t chunks_of(const weft::Runtime& runtime) {
    return std::max<std::size_t>(server_chunks / runtime.contexts(), 2);
}

Store::Store(weft::Runtime& runtime, std::shared_ptr<SharedStore> shared)
    : runtime_(runtime),
      shared_(std::move(shared)),
      chunks_(chunks_of(runtime), [&runtime] { return runtime.allocate(chunk_bytes); }) {}

Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::open(weft::Runtime& runtime, const std::string& path,
                                           const std::string& journal_path) {
    Result<std::shared_ptr<SharedStore>> shared = SharedStore::open(path, journal_path);
    if (!shared) return std::move(shared).status();
    return std::make_unique<Store>(runtime, *std::move(shared));
}

static void describe(const std::string& name, const ObjectInfo& info, Entry& out) {
    out.set_name(name);
    out.set_size(info.size);
    out.set_mtime_ns(info.mtime_ns);
    if (info.crc32c) out.set_crc32c(*info.crc32c);
}

static Status stat_object(const Root& root, const std::string& name, Entry& out) {
    Result<Fd> file = root.open_object(name);
    if (!file) return std::move(file).status();
    const Result<ObjectInfo> info = info_of(file->get(), name);
    if (!info) return info.status();
    describe(name, *info, out);
    return {};
}

Task<Status> Store::Stat(Call&, const StatRequest& in, Entry& out) {
    const auto stat = [&] { return stat_object(shared_->root, in.name(), out); };
    co_return co_await weft::offload(stat);
}

static Status list_page(const Root& root, const ListRequest& in, std::size_t bytes_max,
                        ListReply& out) {
    std::size_t bytes = 16;  // `more`, with room to spare.
    return list(root, in.prefix(), in.after(),
                [&](const std::string& name, const ObjectInfo& info) {
                    Entry entry;
                    describe(name, info, entry);
                    bytes += entry.ByteSizeLong() + 4;  // With its tag and length.
                    if (bytes > bytes_max) {
                        out.set_more(true);
                        return false;
                    }
                    *out.add_entries() = std::move(entry);
                    return true;
                });
}

Task<Status> Store::List(Call& call, const ListRequest& in, ListReply& out) {
    const std::size_t bytes_max = call.reply_bytes_max();
    const auto page = [&] { return list_page(shared_->root, in, bytes_max, out); };
    co_return co_await weft::offload(page);
}

Task<Status> Store::Delete(Call&, const DeleteRequest& in, DeleteReply&) {
    const auto remove = [&] {
        Status status = validate_name(in.name());
        if (status.ok()) status = shared_->journal.remove(in.name());
        return status.ok() ? shared_->root.remove(in.name()) : status;
    };
    co_return co_await weft::offload(remove);
}

// ---- settings ----------------------------------------------------------------------------------

Status Store::NextVersion(Call&, const NextVersionRequest&, NextVersionReply& out) {
    out.set_number(
        shared_->with_settings([](Settings& settings) { return settings.next(wall_time()); }));
    return {};
}

Status Store::SetConfig(Call&, const Setting& in, SetConfigReply&) {
    return shared_->with_settings(
        [&](Settings& settings) { return settings.set(in, wall_time()); });
}

Status Store::GetConfig(Call&, const GetConfigRequest& in, Setting& out) {
    return shared_->with_settings([&](Settings& settings) { return settings.get(in.key(), out); });
}

}  // namespace storage
