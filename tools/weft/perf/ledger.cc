#include "perf/ledger.h"

#include <sstream>

#include "api/node.h"
#include "perf/service.h"

#ifdef WEFT_WITH_VERBS
#include "na/verbs/verbs.h"
#endif

namespace weft::tool {

LedgerCounts read_ledger([[maybe_unused]] Runtime& runtime) {
    LedgerCounts counts;
#ifdef WEFT_WITH_VERBS
    for (const auto& slot : runtime.node().context.endpoints()) {
        const na::verbs::Ledger* ledger = na::ledger_of(*slot->endpoint);
        if (!ledger) continue;
        for (const auto& row : na::verbs::Ledger::rows()) {
            counts.push_back({std::string(row.name), ledger->*row.count});
        }
        const na::verbs::PcieCost cost = na::verbs::pcie_cost(*ledger);
        counts.push_back({"PCIe writes by the processor", cost.processor_writes});
        counts.push_back({"PCIe reads by the card", cost.card_reads});
        counts.push_back({"PCIe writes by the card", cost.card_writes});
        break;
    }
#endif
    return counts;
}

std::string encode(const LedgerCounts& counts) {
    std::string text;
    for (const LedgerCount& row : counts) text += std::to_string(row.count) + " " + row.name + "\n";
    return text;
}

Result<LedgerCounts> LedgerMeter::ask() {
    Result<std::string> reply = client_.call(perf_ledger, {});
    if (!reply) return std::move(reply).status();
    std::istringstream lines(*reply);
    LedgerCounts counts;
    LedgerCount row;
    while (lines >> row.count && lines.get() == ' ' && std::getline(lines, row.name)) {
        counts.push_back(row);
    }
    if (counts.empty()) return fail(Code::failed_precondition, "the server has no RDMA card");
    return counts;
}

// The call that asks is the server's before it counts, and ours before we do.
Status LedgerMeter::begin() {
    Result<LedgerCounts> there = ask();
    if (!there) return std::move(there).status();
    there_ = *std::move(there);
    here_ = read_ledger(client_.runtime());
    if (here_.empty()) return fail(Code::failed_precondition, "--ledger is about verbs only");
    return {};
}

Result<std::vector<LedgerRow>> LedgerMeter::end(std::uint64_t operations) {
    const LedgerCounts here = read_ledger(client_.runtime());
    Result<LedgerCounts> there = ask();
    if (!there) return std::move(there).status();
    if (here.size() != here_.size() || there->size() != here.size() ||
        there_.size() != here.size()) {
        return fail(Code::failed_precondition, "the server keeps another ledger than this program");
    }
    std::vector<LedgerRow> rows;
    const auto each = [&](std::uint64_t after, std::uint64_t before) {
        return static_cast<double>(after - before) / static_cast<double>(operations);
    };
    for (std::size_t i = 0; i < here.size(); ++i) {
        rows.push_back({here[i].name, each(here[i].count, here_[i].count),
                        each((*there)[i].count, there_[i].count)});
    }
    return rows;
}

}  // namespace weft::tool
