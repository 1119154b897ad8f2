// Package house has the tests of the repository as a whole: its pages, its manifests of modules,
// and rules of the code that no linter knows.
package house
