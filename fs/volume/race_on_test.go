//go:build race

package volume

// raceDetector: everything takes ten times as long.
const raceDetector = true
