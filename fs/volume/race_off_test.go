//go:build !race

package volume

const raceDetector = false
