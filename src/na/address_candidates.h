// The addresses of a host name that has several, tried one after the other (after RFC 8305). In the
// first round each address has a short time, enough for a live host to answer. In the second round
// each address that timed out has the whole time. Pure: no I/O, the caller passes the time.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <weft/time.h>

#include "base/assert.h"
#include "na/socket_name.h"

namespace weft::na {

class AddressCandidates {
  public:
    static constexpr Duration first_round_time = 250ms;  // RFC 8305, 5.

    // Requires: names is not empty.
    explicit AddressCandidates(const std::vector<SocketName>& names) {
        WEFT_ASSERT(!names.empty());
        for (const SocketName& name : names) all_.push_back({name, {}});
    }

    const SocketName& name() const { return all_[at_].name; }  // The address to try now.
    Duration time(Duration whole) const { return is_second_round_ ? whole : first_round_time; }

    // Records why the current address failed and moves on. False: no address is left.
    bool next(std::string why, bool timed_out) {
        WEFT_ASSERT(at_ < all_.size());  // No call after it returned false.
        all_[at_].why = std::move(why);
        all_[at_].timed_out = timed_out;
        while (++at_ < all_.size()) {
            if (!is_second_round_ || all_[at_].timed_out) return true;
        }
        if (std::exchange(is_second_round_, true)) return false;
        for (at_ = 0; at_ < all_.size(); ++at_) {
            if (all_[at_].timed_out) return true;
        }
        return false;
    }

    // "192.0.2.1:80 refused it; ...": the failure of each address that was tried.
    std::string describe() const {
        std::string text;
        for (std::size_t i = 0; i < all_.size(); ++i) {
            const bool is_first = i == at_ && all_[i].why.empty();
            const std::string why =
                is_first ? all_[i].name.text() + ": no answer yet" : all_[i].why;
            if (!why.empty()) text += (text.empty() ? "" : "; ") + why;
        }
        return text;
    }

  private:
    struct Candidate {
        SocketName name;
        std::string why;
        bool timed_out = false;
    };
    std::vector<Candidate> all_;
    std::size_t at_ = 0;
    bool is_second_round_ = false;
};

}  // namespace weft::na
