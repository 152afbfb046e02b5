//===- Style.h - The style of a page ----------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_REPORT_STYLE_H
#define STEM_LIB_REPORT_STYLE_H

namespace stem {

/// Six colours that differ in lightness or along blue to yellow, which most
/// colour-blind people see; after Okabe and Ito. Paper is light. No character
/// here is markup.
constexpr const char *pageStyle = R"(
:root { color-scheme: light dark;
  --paper: #ffffff; --ink: #1b1b1b; --soft: #5c5c5c; --rule: #d9d9d9;
  --c0: #00598c; --c1: #e07b00; --c2: #009e73; --c3: #a6568c; --c4: #8a6d00;
  --c5: #555555; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #16181b; --ink: #e8e8e8; --soft: #a9adb3; --rule: #3a3e44;
  --c0: #56b4e9; --c1: #e69f00; --c2: #2bc79a; --c3: #e39cc6; --c4: #f0e442;
  --c5: #bbbbbb; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 56rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem;
  border-bottom: 1px solid var(--rule); }
p { max-width: 44rem; overflow-wrap: anywhere; }
.note, .empty { color: var(--soft); font-size: .875rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .875rem;
  font-variant-numeric: tabular-nums; }
caption, figcaption { text-align: left; font-weight: 600; font-size: .95rem;
  padding-bottom: .25rem; }
th, td { padding: .25rem .75rem .25rem 0; text-align: left;
  border-bottom: 1px solid var(--rule); vertical-align: top; }
td.text { overflow-wrap: anywhere; }
.number { text-align: right; padding-left: .75rem; padding-right: 0;
  white-space: nowrap; }
th.number { white-space: normal; }
figure { margin: 1.5rem 0; }
.drawing { overflow-x: auto; }
.drawing svg { display: block; width: 100%; min-width: 32rem; height: auto; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem;
  margin: .25rem 0 .5rem; padding: 0; font-size: .875rem; }
.key { width: 28px; height: 12px; vertical-align: -1px; overflow: visible; }
.s0 { --colour: var(--c0); } .s1 { --colour: var(--c1); }
.s2 { --colour: var(--c2); } .s3 { --colour: var(--c3); }
.s4 { --colour: var(--c4); } .s5 { --colour: var(--c5); }
.bar { fill: var(--colour); stroke: var(--ink); stroke-width: .5; }
.mark { fill: var(--colour); stroke: var(--paper); stroke-width: .5; }
.line { fill: none; stroke: var(--colour); stroke-width: 2;
  stroke-linejoin: round; }
.d1 { stroke-dasharray: 7 3; } .d2 { stroke-dasharray: 2 3; }
.d3 { stroke-dasharray: 9 3 2 3; }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); }
text { fill: var(--ink); font-size: 12px; }
.label { fill: var(--soft); } .value { font-size: 11px; }
.middle { text-anchor: middle; } .end { text-anchor: end; }
.strong { font-weight: 700; }
@media print { body { font-size: 11pt; } main { max-width: none; padding: 0; }
  figure, tr { break-inside: avoid; } h2 { break-after: avoid; }
  .bar, .mark, .line { print-color-adjust: exact; }
  .drawing, .scroll { overflow: visible; } .drawing svg { min-width: 0; } }
)";

} // namespace stem

#endif // STEM_LIB_REPORT_STYLE_H
