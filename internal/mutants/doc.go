// Package mutants breaks the program on purpose, one small way at a time, and
// holds that the simulation notices each: a checker that finds nothing wrong in a
// wrong program would find nothing wrong in this one either.
//
// A mutant is a replacement of some text in one source file. The file is not
// touched: the compiler is given another one in its place (go build -overlay), so
// that no seam for this stands in the code that ships.
package mutants
