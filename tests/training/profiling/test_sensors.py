import threading

import torch

from training.profiling.sensors import Reading, SensorReadings, nvml_sensor, read_sensors


def test_means_are_over_all_readings_and_temperature_and_memory_are_the_highest():
    recorded = SensorReadings()
    recorded.readings += [Reading(300, 50, 40, 2), Reading(500, 100, 44, 7), Reading(400, 90, 43, 6)]
    assert recorded.means() == {
        "mean_power_w": 400,
        "mean_utilisation_percent": 80,
        "highest_temperature_c": 44,
        "highest_device_memory_gb": 7,
    }


def test_sensor_is_read_while_the_block_runs_and_no_longer():
    enough, count = threading.Event(), 0

    def read():
        nonlocal count
        count += 1
        if count == 3:
            enough.set()
        return Reading(100 * count, 50, 40, 1)

    with read_sensors(read) as recorded:
        assert enough.wait(timeout=30)
    after = len(recorded.readings)
    assert after == count >= 3
    assert recorded.readings[:3] == [Reading(power, 50, 40, 1) for power in (100, 200, 300)]
    assert not [thread for thread in threading.enumerate() if thread.name == "sensors"]


def test_without_a_gpu_there_is_nothing_to_read():
    assert nvml_sensor(torch.device("cpu")) is None
    with read_sensors(None) as recorded:
        pass
    assert recorded.means() == {}
