// `weft get`: fetches an object, a range of one, or all objects below a name.
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <filesystem>

#include "api/runtime_impl.h"
#include "cli/interrupt.h"
#include "cli/progress_bar.h"
#include "commands.h"
#include "storage/bounds.h"
#include "storage/crc32c.h"
#include "storage/name.h"
#include "store/created_directories.h"
#include "store/listing.h"
#include "store/parallel_transfers.h"
#include "store/session.h"

namespace weft::tool {

namespace {

namespace fs = std::filesystem;

struct Range {
    std::uint64_t offset = 0;
    std::uint32_t length = 0;
};

struct GetOptions {
    std::vector<std::string> servers;
    std::string name;
    std::string file;
    std::optional<Range> extent;
    bool quiet = false;
};

struct Target {
    std::string name;
    std::string path;       // "-": standard output.
    std::string directory;  // Created if it is missing; empty: none.
};

std::optional<Range> parse_range(const std::string& text) {
    Range range;
    const char* end = text.data() + text.size();
    const auto offset = std::from_chars(text.data(), end, range.offset);
    if (offset.ec != std::errc() || offset.ptr == end || *offset.ptr != '+') return std::nullopt;
    const auto length = std::from_chars(offset.ptr + 1, end, range.length);
    if (length.ec != std::errc() || length.ptr != end || range.length == 0) return std::nullopt;
    if (range.offset > UINT64_MAX - range.length) return std::nullopt;
    return range;
}

// The file for one object; the options may name its directory instead.
std::string target_path(const GetOptions& options) {
    std::string leaf = storage::split(options.name).leaf;
    if (options.file.empty()) return leaf;
    std::error_code ignored;
    const bool is_directory = fs::is_directory(options.file, ignored);
    return is_directory ? (fs::path(options.file) / leaf).string() : options.file;
}

// Every object below "name/", each at its place below the directory.
Result<std::vector<Target>> targets_below(Session& session, const GetOptions& options,
                                          std::uint64_t& bytes) {
    Result<std::vector<storage::Entry>> entries = list_all(session, options.name);
    if (!entries) return std::move(entries).status();
    if (entries->empty()) {
        return fail(Code::not_found,
                    "the server has no object below " + storage::quote(options.name));
    }
    if (options.file == "-") {
        return fail(Code::invalid_argument,
                    "several objects can't go to standard output; name a directory");
    }
    const fs::path base = options.file.empty() ? fs::path(options.name).parent_path().filename()
                                               : fs::path(options.file);
    std::vector<Target> targets;
    for (const storage::Entry& entry : *entries) {
        // The server is not trusted to choose local paths: list_all() fails unless all names are
        // valid and below the prefix.
        const fs::path path = base / entry.name().substr(options.name.size());
        targets.push_back({entry.name(), path.string(), path.parent_path().string()});
        bytes += entry.size();
    }
    return targets;
}

Result<storage::Sink> open_sink(const Target& target) {
    if (target.path == "-") return storage::Sink::descriptor(STDOUT_FILENO, "standard output");
    return storage::Sink::file(target.path);
}

Task<Result<storage::TransferResult>> get_one(storage::Client& client, const Target& target,
                                              CreatedDirectories& directories, ProgressBar& bar) {
    const auto open = [&]() -> Result<storage::Sink> {
        if (Status status = directories.make(target.directory); !status.ok()) return status;
        return open_sink(target);
    };
    Result<storage::Sink> opened = co_await offload(open);
    if (!opened) co_return opened.status();
    std::optional<storage::Sink> sink(*std::move(opened));
    std::uint64_t before = 0;
    const storage::Progress progress = [&](std::uint64_t bytes) {
        bar.add(bytes - before);
        before = bytes;
    };
    const Result<storage::TransferResult> moved = co_await client.get(target.name, *sink, progress);
    const auto close = [&] { sink.reset(); };
    co_await offload(close);
    co_return moved;
}

Task<Result<storage::TransferResult>> get_extent(storage::Client& client, const Target& target,
                                                 Range range) {
    const Result<Buffer> memory =
        co_await client.read_extent(target.name, range.offset, range.length);
    if (!memory) co_return memory.status();
    const auto write = [&]() -> Status {
        Result<storage::Sink> sink = open_sink(target);
        if (!sink) return std::move(sink).status();
        if (Status status = sink->write(memory->bytes()); !status.ok()) return status;
        return sink->finish();
    };
    if (Status status = co_await offload(write); !status.ok()) co_return status;
    co_return storage::TransferResult{memory->size(), storage::crc32c(0, memory->bytes())};
}

Status get(const GetOptions& options, Invocation& invocation) {
    if (options.name.empty()) return rejected_locally(storage::validate_name(""));
    if (Status status = rejected_locally(storage::validate_prefix(options.name)); !status.ok())
        return status;
    Result<Session> session = Session::open(options.servers);
    if (!session) return std::move(session).status();
    const bool quiet = options.quiet || options.file == "-";
    std::uint64_t bytes = 0;
    const Interrupt interrupt([&] { impl_of(session->runtime).shutdown(); });
    std::vector<Target> targets{{options.name, target_path(options), ""}};
    if (options.name.ends_with('/')) {
        Result<std::vector<Target>> below = targets_below(*session, options, bytes);
        if (!below) return std::move(below).status();
        targets = *std::move(below);
    } else if (!options.extent) {
        Result<storage::Entry> entry = stat_object(*session, options.name);
        if (!entry) return std::move(entry).status();
        bytes = entry->size();
    }
    TransferTotals done;
    CreatedDirectories directories;
    {
        ProgressBar bar(bytes, !quiet && !invocation.json);
        done = transfer_all(*session, targets.size(), [&](storage::Client& client, std::size_t at) {
            if (options.extent) {
                return get_extent(client, targets[at], *options.extent);
            }
            return get_one(client, targets[at], directories, bar);
        });
    }
    if (!done.status.ok()) directories.remove_empty();
    report("fetched", options.name, done, quiet, invocation);
    return done.status;
}

}  // namespace

void set_up_get(CLI::App& command, Invocation& invocation) {
    auto options = std::make_shared<GetOptions>();
    command.description("Fetch an object, or with a NAME that ends in / all objects below it");
    command.footer(
        "A file gets its name when it is complete and its checksum is right.\n"
        "Example: weft get --server tcp://10.0.0.7:7400 runs/7 results.h5");
    add_server_option(command, options->servers);
    command.add_option("name", options->name, "The object's name")->required();
    command
        .add_option("file", options->file,
                    "A file, a directory, or - for standard output (default: the last part of "
                    "the name, here)")
        ->check(why_empty);
    command
        .add_option_function<std::string>(
            "--extent",
            [options](const std::string& text) { options->extent = *parse_range(text); },
            "OFFSET+LENGTH, up to " + std::to_string(storage::extent_bytes_max >> 20) +
                " MiB, read from memory that the server exposes")
        ->check([](const std::string& text) {
            return std::string(parse_range(text)
                                   ? ""
                                   : "'" + text +
                                         "' is not OFFSET+LENGTH in bytes, at least one of them");
        });
    command.add_flag("--quiet", options->quiet, "Print nothing unless it fails");
    command.callback([options, &invocation] { invocation.status = get(*options, invocation); });
}

}  // namespace weft::tool
