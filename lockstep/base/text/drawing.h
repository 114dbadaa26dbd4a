// A picture as SVG: boxes, lines, arrows and words in the colours of base/text/palette.h, readable
// on light and on dark screens.
//
//   Drawing drawing(640, "All-reduce by ring", "Four ranks on a circle ...");
//   drawing.box({40, 80, 120, 30}, "blue");
//   drawing.text(100, 99, "chunk 0", "middle on");
//   write_file(path, drawing.finish(200));
//
// Styles are names of classes, separated by spaces:
//
//   blue orange teal purple rose grey card     what an area is filled with
//   soft                                       an area of the same colour, pale, with an outline
//   ghost                                      an area without filling, its outline dashed
//   line-blue ... line-grey, line-axis         the colour of a line or an outline
//   thick thin dashed                          how a line is drawn
//   title note small tiny strong quiet         how words are set; ink-blue ... their colour
//   middle end                                 where words stand: around x, or before it
//   on                                         words on a coloured area
//
// The same calls give the same bytes on every machine: numbers are rounded to a tenth.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Drawing {
 public:
  struct Area {
    double x = 0;
    double y = 0;
    double width = 0;
    double height = 0;
    double right() const { return x + width; }
    double bottom() const { return y + height; }
    double middle() const { return x + width / 2; }
    double centre() const { return y + height / 2; }
  };
  struct Point {
    double x = 0;
    double y = 0;
  };
  // An entry of a legend: an area of that style, and what it stands for.
  struct Key {
    std::string style;
    std::string text;
  };

  static constexpr double kMargin = 24;

  // `description` is for screen readers.
  Drawing(double width, std::string title, std::string description);

  double width() const { return width_; }

  // Adds wrapped text below the title or the previous note.
  void note(std::string_view text);
  // The y coordinate below the last note.
  double notes_end() const { return notes_end_; }
  // Draws the entries in one line from x on. Returns the x coordinate of the end.
  double legend(double x, double y, const std::vector<Key>& keys);

  void box(const Area& area, std::string_view style, double radius = 3);
  void line(Point from, Point to, std::string_view style);
  void circle(Point centre, double radius, std::string_view style);
  // An arrow, straight or bent to the left by `bend` pixels.
  void arrow(Point from, Point to, std::string_view colour, double bend = 0,
             std::string_view style = "");
  void text(double x, double y, std::string_view text, std::string_view style = "");
  // Writes text in the middle of an area if it fits; returns whether it did.
  bool label(const Area& area, std::string_view text, std::string_view style);
  // Rotated text that ends at the point, so that labels of narrow columns do not overlap.
  void slanted(double x, double y, std::string_view text, std::string_view style = "");
  // Adds raw SVG, and style rules for it, with colours as var(--blue).
  void markup(std::string_view svg) { body_ += svg; }
  void rules(std::string_view style) { rules_ += style; }

  // An upper bound of the width of text at a font size; viewers choose the font.
  static double text_width(std::string_view text, double size = 13);

  // The whole file.
  std::string finish(double height) const;

 private:
  double width_;
  std::string title_;
  std::string description_;
  std::string rules_;
  std::string body_;
  double notes_end_ = 0;
};

}  // namespace lockstep
