// Counts outcomes of operations by code and effect, and checks that each completed once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <weft/channel.h>

namespace weft::test {

class Outcomes {
  public:
    Completion call() {
        return [this, index = start()](const Status& status, ByteView) { end(index, status); };
    }
    TransferCompletion transfer() {
        return [this, index = start()](const Status& status) { end(index, status); };
    }

    std::size_t ended() const { return ended_; }
    bool all_ended() const { return ended_ == seen_.size(); }
    bool each_once() const { return all_ended() && again_ == 0; }
    std::size_t ok() const { return count("OK"); }
    // "UNAVAILABLE unknown"
    std::size_t count(const std::string& kind) const {
        const auto found = kinds_.find(kind);
        return found == kinds_.end() ? 0 : found->second;
    }
    std::string text() const {
        std::string all;
        for (const auto& [kind, count] : kinds_) all += std::to_string(count) + " " + kind + ", ";
        return all + std::to_string(seen_.size() - ended_) + " under way, " +
               std::to_string(again_) + " ended again; the first failure: " + first_failure_;
    }

  private:
    std::size_t start() {
        seen_.push_back(false);
        return seen_.size() - 1;
    }
    void end(std::size_t index, const Status& status) {
        if (seen_[index]) {
            ++again_;
            return;
        }
        seen_[index] = true;
        ++ended_;
        if (status.ok()) {
            ++kinds_["OK"];
            return;
        }
        ++kinds_[std::string(name_of(status.code())) + " " + std::string(name_of(status.effect()))];
        if (first_failure_.empty()) first_failure_ = status.to_string();
    }

    std::vector<bool> seen_;
    std::size_t ended_ = 0, again_ = 0;
    std::map<std::string, std::size_t> kinds_;
    std::string first_failure_;
};

}  // namespace weft::test
