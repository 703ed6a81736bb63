#include "perf/server_process.h"

#include <utility>

#include "cli/own_uri.h"
#include "perf/first_line.h"

namespace weft::tool {

Result<ServerProcess> ServerProcess::launch(const PerfOptions& options, std::vector<int> cpus,
                                            bool bare) {
    const std::string listen =
        options.listen.empty() ? own_uri(options.transport, "perf") : options.listen;
    if (listen.empty()) {
        return fail(Code::invalid_argument,
                    "transport '" + options.transport +
                        "' has no default loopback address: run `weft perf serve --listen URI` "
                        "and pass that with --server URI");
    }
    std::vector<std::string> words = {"/proc/self/exe", "perf", "serve", "--listen", listen};
    if (options.wait != WaitMode::adaptive) {
        words.push_back(std::string("--") + name_of(options.wait));
    }
    if (!options.without.empty()) words.insert(words.end(), {"--without", options.without});
    if (options.contexts != 1) {
        words.insert(words.end(), {"--contexts", std::to_string(options.contexts)});
    }
    if (bare) words.push_back("--bare");
    Result<Child> child = Child::start(words, {.cpus = std::move(cpus)});
    if (!child) return std::move(child).status();
    return ServerProcess(*std::move(child));
}

Result<std::string> ServerProcess::uri_within(Duration limit) {
    Result<std::string> line = child_.line(limit);
    if (!line && line.status().code() == Code::deadline_exceeded) return line;
    Result<std::string> uri = read_first_line(line ? *line : "");
    if (uri) uri_ = *uri;
    return uri;
}

Result<ServerProcess> ServerProcess::start(const PerfOptions& options, std::vector<int> cpus,
                                           bool bare) {
    Result<ServerProcess> process = launch(options, std::move(cpus), bare);
    if (!process) return process;
    Result<std::string> uri = process->uri_within(5s);
    if (uri) return process;
    if (uri.status().code() != Code::deadline_exceeded) return std::move(uri).status();
    return fail(Code::internal, "the server process did not start");
}

}  // namespace weft::tool
