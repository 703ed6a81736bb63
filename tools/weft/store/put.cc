// `weft put`: stores a file, a directory or standard input.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "cli/number.h"
#include "cli/progress_bar.h"
#include "commands.h"
#include "storage/name.h"
#include "store/parallel_transfers.h"
#include "store/session.h"

namespace weft::tool {

namespace {

namespace fs = std::filesystem;

struct PutOptions {
    std::vector<std::string> servers;
    std::string file;
    std::string name;
    bool quiet = false;
};

struct Source {
    std::string path;  // "-": standard input.
    std::string name;
    std::uint64_t size = 0;
};

struct Sources {
    std::string name;  // Of the object, or the prefix of all names.
    std::vector<Source> list;
    std::uint64_t bytes = 0;
};

// Every regular file below the directory, in order.
Result<Sources> below(const fs::path& directory, const std::string& name) {
    Sources sources{name, {}, 0};
    std::error_code error;
    fs::path last = directory;  // The entry to open next, or the one that failed.
    fs::recursive_directory_iterator at(directory, error);
    for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
        last = at->path();
        std::error_code ignored;  // A dangling link is no file.
        if (!fs::is_regular_file(at->path(), ignored)) continue;
        const std::uint64_t size = fs::file_size(at->path(), ignored);
        const std::string relative = at->path().lexically_relative(directory).string();
        std::string object = name;
        object.append("/").append(relative);
        sources.list.push_back({at->path().string(), std::move(object), size});
        sources.bytes += size;
    }
    if (error) {
        return storage::errno_status(error.value(), "can't read '" + last.string() + "'");
    }
    std::sort(sources.list.begin(), sources.list.end(),
              [](const Source& a, const Source& b) { return a.name < b.name; });
    return sources;
}

Result<Sources> find_sources(const PutOptions& options) {
    std::string name = options.name;
    if (options.file == "-") {
        if (name.empty()) return fail(Code::invalid_argument, "standard input needs a NAME");
        return Sources{name, {{"-", name, 0}}, 0};
    }
    struct stat file {};
    if (::stat(options.file.c_str(), &file) != 0) {
        return storage::errno_status(errno, "can't read '" + options.file + "'");
    }
    if (name.empty()) {
        const fs::path path = fs::absolute(options.file).lexically_normal();
        name = (path.has_filename() ? path : path.parent_path()).filename().string();
    }
    if (S_ISDIR(file.st_mode)) return below(options.file, name);
    const auto size = static_cast<std::uint64_t>(file.st_size);
    return Sources{name, {{options.file, name, size}}, size};
}

std::string shown(const Source& source) {
    return source.path == "-" ? "standard input" : "'" + source.path + "'";
}

Result<storage::Fd> open_source(const Source& source) {
    storage::Fd fd(source.path == "-" ? ::dup(STDIN_FILENO)
                                      : ::open(source.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return storage::errno_status(errno, "can't open " + shown(source));
    return fd;
}

Task<Result<storage::TransferResult>> put_one(storage::Client& client, const Source& source,
                                              ProgressBar& bar) {
    const auto open = [&] { return open_source(source); };
    const Result<storage::Fd> fd = co_await offload(open);
    if (!fd) co_return fd.status();
    std::uint64_t before = 0;
    const storage::Progress progress = [&](std::uint64_t bytes) {
        bar.add(bytes - before);
        before = bytes;
    };
    co_return co_await client.put(fd->get(), shown(source), source.name, progress);
}

// Runs before anything is sent: if one name is invalid, nothing is stored.
Status validate_names(const Sources& sources) {
    for (const Source& source : sources.list) {
        Status status = rejected_locally(storage::validate_name(source.name));
        if (!status.ok()) return std::move(status).in("can't put " + storage::quote(source.name));
    }
    return {};
}

void put(const PutOptions& options, Invocation& invocation) {
    Result<Sources> sources = find_sources(options);
    if (sources) {
        if (Status status = validate_names(*sources); !status.ok()) sources = std::move(status);
    }
    Result<Session> session = sources ? Session::open(options.servers) : sources.status();
    if (!session) {
        invocation.status = session.status();
        return;
    }
    TransferTotals done;
    {
        ProgressBar bar(sources->bytes, !options.quiet && !invocation.json);
        done = transfer_all(*session, sources->list.size(),
                            [&](storage::Client& client, std::size_t at) {
                                return put_one(client, sources->list[at], bar);
                            });
    }
    invocation.status = done.status;
    report("stored", sources->name, done, options.quiet, invocation);
}

}  // namespace

void set_up_put(CLI::App& command, Invocation& invocation) {
    auto options = std::make_shared<PutOptions>();
    command.description("Store a file, or every file below a directory");
    command.footer(
        "An object gets its name when it is complete and on the server's disk: an earlier failure "
        "leaves nothing behind.\nExample: weft put --server sm://store results.h5 runs/7");
    add_server_option(command, options->servers);
    command.add_option("file", options->file, "A file, a directory, or - for standard input")
        ->check(not_empty())
        ->required();
    command
        .add_option("name", options->name,
                    "The object's name, or the prefix of the names of a directory's objects "
                    "(default: the file's name)")
        ->check(why_empty);
    command.add_flag("--quiet", options->quiet, "Print nothing unless it fails");
    command.callback([options, &invocation] { put(*options, invocation); });
}

}  // namespace weft::tool
