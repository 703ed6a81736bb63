// `weft ls`, `weft stat`, `weft rm`: objects in a store, without their bytes.
#include <cstdio>

#include "base/text.h"
#include "cli/text.h"
#include "commands.h"
#include "storage/listing_pages.h"
#include "storage/name.h"
#include "store/listing.h"

namespace weft::tool {

namespace {

struct ObjectOptions {
    std::vector<std::string> servers;
    std::string name;
};

Json to_json(const storage::Entry& entry) {
    Json json;
    json["name"] = entry.name();
    json["bytes"] = entry.size();
    json["mtime_ns"] = entry.mtime_ns();
    json["crc32c"] = entry.has_crc32c() ? Json(format_crc32c(entry.crc32c())) : Json(nullptr);
    return json;
}

std::string crc_of(const storage::Entry& entry) {
    return entry.has_crc32c() ? format_crc32c(entry.crc32c()) : "-";
}

Task<Result<std::vector<storage::Entry>>> list_pages(storage::StoreClient stub,
                                                     const std::string& prefix) {
    storage::ListingPages listing(prefix, TimePoint::clock::now());
    storage::ListRequest request;
    request.set_prefix(prefix);
    while (true) {
        Result<storage::ListReply> page = co_await stub.List(request, {.timeout = call_timeout});
        if (!page) co_return page.status();
        const bool has_more = page->more();
        if (Status status = listing.add(*std::move(page), TimePoint::clock::now()); !status.ok()) {
            co_return status;
        }
        if (!has_more) co_return listing.take();
        request.set_after(listing.last());
    }
}

Task<Result<storage::Entry>> stat_one(storage::StoreClient stub, const std::string& name) {
    storage::StatRequest request;
    request.set_name(name);
    co_return co_await stub.Stat(request, {.timeout = call_timeout});
}

Task<Status> remove_one(storage::StoreClient stub, const std::string& name) {
    storage::DeleteRequest request;
    request.set_name(name);
    const Result<storage::DeleteReply> reply =
        co_await stub.Delete(request, {.timeout = call_timeout});
    co_return reply.status();
}

Status ls(const ObjectOptions& options, Invocation& invocation) {
    if (Status status = rejected_locally(storage::validate_prefix(options.name)); !status.ok())
        return status;
    Result<Session> session = Session::open(options.servers);
    if (!session) return std::move(session).status();
    const Result<std::vector<storage::Entry>> entries = list_all(*session, options.name);
    if (!entries) return entries.status();
    if (invocation.json) {
        Json json;
        json["objects"] = Json::array();
        for (const storage::Entry& entry : *entries) json["objects"].push_back(to_json(entry));
        invocation.answer = std::move(json);
        return {};
    }
    for (const storage::Entry& entry : *entries) {
        std::printf("%10s  %8s  %s  %s\n", format_bytes(static_cast<double>(entry.size())).c_str(),
                    crc_of(entry).c_str(), format_mtime(entry.mtime_ns()).c_str(),
                    base::printable(entry.name()).c_str());
    }
    return {};
}

Status stat(const ObjectOptions& options, Invocation& invocation) {
    if (Status status = rejected_locally(storage::validate_name(options.name)); !status.ok())
        return status;
    Result<Session> session = Session::open(options.servers);
    if (!session) return std::move(session).status();
    const Result<storage::Entry> entry = stat_object(*session, options.name);
    if (!entry) return entry.status();
    if (invocation.json) {
        invocation.answer = to_json(*entry);
        return {};
    }
    std::printf("name    %s\nbytes   %llu\nmtime   %s\ncrc32c  %s\n",
                base::printable(entry->name()).c_str(),
                static_cast<unsigned long long>(entry->size()),
                format_mtime(entry->mtime_ns()).c_str(), crc_of(*entry).c_str());
    return {};
}

Status rm(const ObjectOptions& options, Invocation& invocation) {
    if (Status status = rejected_locally(storage::validate_name(options.name)); !status.ok())
        return status;
    Result<Session> session = Session::open(options.servers);
    if (!session) return std::move(session).status();
    Status status =
        session->runtime.block_on(remove_one(storage::StoreClient(session->channel), options.name));
    if (status.ok() && invocation.json) invocation.answer = {{"removed", options.name}};
    return status;
}

void set_up(CLI::App& command, Invocation& invocation, const char* name_text, bool name_required,
            Status (*run)(const ObjectOptions&, Invocation&)) {
    auto options = std::make_shared<ObjectOptions>();
    add_server_option(command, options->servers);
    command.add_option("name", options->name, name_text)->required(name_required);
    command.callback(
        [options, &invocation, run] { invocation.status = run(*options, invocation); });
}

}  // namespace

Result<std::vector<storage::Entry>> list_all(Session& session, const std::string& prefix) {
    return session.runtime.block_on(list_pages(storage::StoreClient(session.channel), prefix));
}

Result<storage::Entry> stat_object(Session& session, const std::string& name) {
    return session.runtime.block_on(stat_one(storage::StoreClient(session.channel), name));
}

void set_up_ls(CLI::App& command, Invocation& invocation) {
    command.description("List objects: size, CRC32C, time of storing, name");
    set_up(command, invocation, "The prefix of the names (default: all)", false, ls);
}

void set_up_stat(CLI::App& command, Invocation& invocation) {
    command.description("Show the size, time and checksum of an object");
    set_up(command, invocation, "The object's name", true, stat);
}

void set_up_rm(CLI::App& command, Invocation& invocation) {
    command.description("Remove an object");
    set_up(command, invocation, "The object's name", true, rm);
}

}  // namespace weft::tool
