// Package report owns what experiments' HTML reports have in common: charts as
// inline SVG, and the style sheet that colours both, in light and dark.
//
// The central types are [Chart], a time line in a small panel, and [Forest],
// ratios with their intervals. Both give an SVG element to be put into a page
// together with [CSS]; such a page needs nothing else, no network, no script
// and no font.
//
// The SVG is made here and not by gonum/plot, whose SVG canvas writes colours,
// fonts and sizes into each element: a dozen small panels of it would follow
// neither a dark theme nor the page's type, and carry no text for a pointer to
// show. Here elements carry classes, and the theme is the style sheet's.
//
// The package may import the standard library only. It keeps no state; equal
// charts give equal bytes.
package report
