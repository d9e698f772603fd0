// Command autotune measures, decides and sets how Linux delivers received
// packets, per NAPI instance.
//
// This package is wiring only: one file per command, each of which parses its
// flags, joins the parts (probe, tuner, actuate, experiments) and prints. It may
// import every package of the module; nothing imports it.
package main
