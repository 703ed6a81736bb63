// The addresses of a host name that has several, tried one after the other (after RFC 8305): each
// has a moment first, since one that is there answers in that; then those that were silent have
// their whole time. Pure: no I/O, the caller brings time.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <weft/time.h>

#include "na/socket_name.h"

namespace weft::na {

class Alternatives {
  public:
    static constexpr Duration moment = 250ms;  // RFC 8305, 5.

    // Requires: names is not empty.
    explicit Alternatives(const std::vector<SocketName>& names) {
        for (const SocketName& name : names) all_.push_back({name, {}});
    }

    const SocketName& name() const { return all_[at_].name; }  // To be tried now.
    Duration time(Duration whole) const { return is_second_round_ ? whole : moment; }

    // What the one that was tried came to. False: there is none left to try.
    bool next(std::string why, bool is_silent) {
        all_[at_].why = std::move(why);
        all_[at_].is_silent = is_silent;
        while (++at_ < all_.size()) {
            if (!is_second_round_ || all_[at_].is_silent) return true;
        }
        if (std::exchange(is_second_round_, true)) return false;
        for (at_ = 0; at_ < all_.size(); ++at_) {
            if (all_[at_].is_silent) return true;
        }
        return false;
    }

    // "192.0.2.1:80 refused it; ...": what each came to, of those that were tried.
    std::string told() const {
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
    struct One {
        SocketName name;
        std::string why;
        bool is_silent = false;
    };
    std::vector<One> all_;
    std::size_t at_ = 0;
    bool is_second_round_ = false;
};

}  // namespace weft::na
