#include "service.h"

#include <weft/offload.h>

#include "listing.h"
#include "name.h"

namespace storage {

using weft::Call;
using weft::Code;
using weft::Result;
using weft::Status;
using weft::Task;

Store::Store(weft::Runtime& runtime, Root root, Journal journal)
    : runtime_(runtime),
      root_(std::move(root)),
      journal_(std::move(journal)),
      chunks_(server_chunks, [&runtime] { return runtime.allocate(chunk_bytes); }) {}

Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::open(weft::Runtime& runtime, const std::string& path,
                                           const std::string& journal_path) {
    Result<Root> root = Root::open(path);
    if (!root) return std::move(root).status();
    Result<Journal> journal = journal_path.empty() ? Journal() : Journal::open(journal_path);
    if (!journal) return std::move(journal).status();
    return std::unique_ptr<Store>(new Store(runtime, *std::move(root), *std::move(journal)));
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
    const auto stat = [&] { return stat_object(root_, in.name(), out); };
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
    const auto page = [&] { return list_page(root_, in, bytes_max, out); };
    co_return co_await weft::offload(page);
}

Task<Status> Store::Delete(Call&, const DeleteRequest& in, DeleteReply&) {
    const auto remove = [&] {
        Status status = validate_name(in.name());
        if (status.ok()) status = journal_.remove(in.name());
        return status.ok() ? root_.remove(in.name()) : status;
    };
    co_return co_await weft::offload(remove);
}

// ---- settings ----------------------------------------------------------------------------------

Status Store::NextVersion(Call&, const NextVersionRequest&, NextVersionReply& out) {
    out.set_number(settings_.next(wall_time()));
    return {};
}

Status Store::SetConfig(Call&, const Setting& in, SetConfigReply&) {
    return settings_.set(in, wall_time());
}

Status Store::GetConfig(Call&, const GetConfigRequest& in, Setting& out) {
    return settings_.get(in.key(), out);
}

}  // namespace storage
