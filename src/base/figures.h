// Counts with their names, for the state text of a runtime: of one context, or of several in sum.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.h"

namespace weft::base {

class Figures {
  public:
    struct Figure {
        std::string_view name;  // Of static storage.
        std::uint64_t value = 0;
    };
    // Each with the same names in the same order.
    struct Line {
        std::string_view title;
        std::vector<Figure> figures;
    };

    void add_line(std::string_view title, std::vector<Figure> figures) {
        lines_.push_back({title, std::move(figures)});
    }
    void append(Figures&& more) {
        for (Line& line : more.lines_) lines_.push_back(std::move(line));
    }
    // Adds those of another context.
    void add(const Figures& other) {
        if (lines_.empty()) {
            lines_ = other.lines_;
            return;
        }
        WEFT_ASSERT(lines_.size() == other.lines_.size());
        for (std::size_t i = 0; i < lines_.size(); ++i) {
            WEFT_ASSERT(lines_[i].figures.size() == other.lines_[i].figures.size());
            for (std::size_t k = 0; k < lines_[i].figures.size(); ++k)
                lines_[i].figures[k].value += other.lines_[i].figures[k].value;
        }
    }
    // "TITLE: 3 NAME, 1 NAME\n" for each line, without the zeros.
    std::string text() const {
        std::string text;
        for (const Line& line : lines_) {
            text += std::string(line.title) + ":";
            const char* separator = " ";
            for (const Figure& figure : line.figures) {
                if (figure.value == 0) continue;
                text += separator + std::to_string(figure.value) + " " + std::string(figure.name);
                separator = ", ";
            }
            text += *separator == ' ' ? " none\n" : "\n";
        }
        return text;
    }

  private:
    std::vector<Line> lines_;
};

}  // namespace weft::base
