"""The images of a container engine: lookup, pull, list, removal."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvstack.agents.kubelet.runtime.cri import answers
from kvstack.agents.kubelet.runtime.cri.client import CriClient, CriError
from kvstack.agents.kubelet.runtime.cri.gen import api_pb2 as cri
from kvstack.agents.kubelet.runtime.runtime import Image, ImageMissingError, StartError
from kvstack.component.logger import Logger


class EngineImages:
    """The image service of a container engine."""

    def __init__(self, client: CriClient, logger: Logger) -> None:
        """client: of the service of images, which may be the engine's own."""
        self._image_client = client
        self._logger = logger

    async def close_images(self) -> None:
        """Give up the connection, which may have been closed."""
        await self._image_client.close()

    async def find_image(self, name: str) -> Image:
        """Return an image of the engine; raises ImageMissingError, StartError."""
        request = cri.ImageStatusRequest(image=cri.ImageSpec(image=name))
        try:
            answer = await self._image_client.call("ImageStatus", request, cri.ImageStatusResponse)
        except CriError as error:
            raise StartError("ImageInspectError", error.text) from error
        if not answer.image.id:
            raise ImageMissingError(name)
        return answers.image_of(answer.image)

    async def pull_image(self, name: str, credentials: Sequence[Mapping[str, str]]) -> Image:
        """Pull an image, with each of the credentials in turn; raises StartError."""
        for last, login in _with_last(credentials or [{}]):
            auth = cri.AuthConfig(
                username=login.get("username", ""),
                password=login.get("password", ""),
                identity_token=login.get("token", ""),
            )
            request = cri.PullImageRequest(image=cri.ImageSpec(image=name), auth=auth)
            try:
                await self._image_client.call(
                    "PullImage", request, cri.PullImageResponse, timeout_s=None
                )
            except CriError as error:
                if last:
                    raise StartError("ErrImagePull", error.text) from error
            else:
                break
        try:
            return await self.find_image(name)
        except ImageMissingError as error:
            raise StartError("ErrImagePull", f'image "{name}" is gone after its pull') from error

    async def images(self) -> Sequence[Image]:
        """Return the images of the engine."""
        answer = await self._image_client.call(
            "ListImages", cri.ListImagesRequest(), cri.ListImagesResponse
        )
        return [answers.image_of(each) for each in answer.images]

    async def image_directory(self) -> Path | None:
        """Return where the engine has its images."""
        try:
            answer = await self._image_client.call(
                "ImageFsInfo", cri.ImageFsInfoRequest(), cri.ImageFsInfoResponse
            )
        except CriError as error:
            self._logger.warning(
                "the engine does not report the file system of images", error=error.text
            )
            return None
        for each in answer.image_filesystems:
            directory = Path(each.fs_id.mountpoint)
            if await asyncio.to_thread(directory.is_dir):
                return directory
        return None

    async def remove_image(self, image_id: str) -> None:
        """Remove an image."""
        request = cri.RemoveImageRequest(image=cri.ImageSpec(image=image_id))
        await self._image_client.call("RemoveImage", request, cri.RemoveImageResponse)


def _with_last(logins: Sequence[Mapping[str, str]]) -> list[tuple[bool, Mapping[str, str]]]:
    return [(number == len(logins), each) for number, each in enumerate(logins, 1)]
