#include "suite/suite.h"

#include <cstdio>
#include <fstream>

#include "base/text.h"
#include "suite/report.h"
#include "suite/run.h"
#include "suite/service.h"

namespace weft::tool {

// Opened before minutes of measuring, so that a bad path fails at once.
static Result<std::ofstream> open_report(const std::string& path) {
    std::ofstream file(path);
    if (!file) return fail(Code::invalid_argument, "can't write " + path);
    return file;
}

static void print_summary(const SuiteResults& results, const std::string& path) {
    for (const Comparison& one : compare(results)) {
        if (!one.ours) continue;
        std::printf("%-28s %12.0f %-5s", one.what.c_str(), *one.ours, one.unit.c_str());
        if (one.theirs) std::printf("   perftest %12.0f", *one.theirs);
        if (one.ratio) std::printf("   ratio %.2f", *one.ratio);
        std::printf("\n");
    }
    for (const std::string& missing : results.missing) {
        std::printf("not measured: %s\n", base::printable(missing).c_str());
    }
    std::printf("the report is in %s\n", path.c_str());
}

void run_suite(const PerfOptions& options, Invocation& invocation) {
    if (!options.listen.empty()) {
        invocation.status = serve_suite(options);
        return;
    }
    std::ofstream file;
    if (!options.report.empty()) {
        Result<std::ofstream> opened = open_report(options.report);
        if (!opened) {
            invocation.status = std::move(opened).status();
            return;
        }
        file = *std::move(opened);
    }
    Result<SuiteResults> results = measure_suite(options);
    if (!results) {
        invocation.status = std::move(results).status();
        return;
    }
    invocation.status = results->first_failure;
    if (file.is_open()) {
        file << to_markdown(*results);
        file.close();
        if (!file && invocation.status.ok()) {
            invocation.status = fail(Code::resource_exhausted, "can't write " + options.report);
        }
    }
    if (invocation.json) {
        invocation.answer = to_json(*results);
        invocation.answer["error"] = nullptr;
    } else if (options.report.empty()) {
        std::fputs(to_markdown(*results).c_str(), stdout);
    } else {
        print_summary(*results, options.report);
    }
}

}  // namespace weft::tool
