// Package testkit has small helpers for tests of all packages.
package testkit
